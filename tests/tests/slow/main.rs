//! Slow clients of the real binary: other users are not delayed, and the service releases all resources.
//!
//! CI uses few clients; `cargo xtask soak --slow` uses 10,000 connections, and waits for the longer deadlines too.

mod bystander;
mod crowd;
mod memory;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use acceptance::agent_server::variable_of;
use acceptance::client::Client;
use acceptance::processes::{raise_file_limit, resident_bytes};
use acceptance::wait::wait_until;
use acceptance::{Service, Stub, figures, print_line};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bystander::{NormalUser, is_served};

/// Maximum growth of resident memory by all slow clients.
const MAX_MEMORY_BYTES: u64 = 400 << 20;
/// Additional descriptors at the end: kept-alive connections of the normal user and of the store.
const MAX_EXTRA_FILES: usize = 40;
/// Events of the long conversation, and bytes of one.
const EVENT_COUNT: usize = 48;
const EVENT_BYTES: usize = 256 * 1024;

fn is_full() -> bool {
    variable_of("SLOW_FULL").is_some()
}

fn files_of(pid: u32) -> usize {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd"));
    listed.expect("the service runs").count()
}

/// A conversation with more events than fit into the buffers of a connection, a client of its sandbox, and the path for
/// reports.
async fn long_conversation(user: &Client) -> (String, Client, String) {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-unused")
        .await;
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|sandbox| sandbox.session_api_key);
    let agent = user.with_key(&key.expect("a running sandbox has a key"));
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    for number in 0..EVENT_COUNT {
        let mut event = figures::event(&format!("slow-{number}"), "2026-11-21T10:00:00.123456");
        // Incompressible.
        let text: Vec<String> = (0..EVENT_BYTES / 20)
            .map(|part| format!("{:020}", RandomState::new().hash_one(part)))
            .collect();
        event["padding"] = text.concat().into();
        let _: Value = agent.post(&path, &json!([event])).await.ok();
    }
    (conversation.id, agent, path)
}

fn get(path: &str, key: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\r\n")
}

/// The service, its users, and a long conversation.
struct World {
    service: Service,
    user: Client,
    conversation: String,
    normal_user: NormalUser,
    _stub: Stub,
}

impl World {
    async fn start() -> Self {
        raise_file_limit();
        let stub = Stub::new();
        let service = Service::builder()
            .stub(&stub)
            .env("WORKSPACE_LOG__LEVEL", "warn")
            .env("WORKSPACE_HTTP__SEND_TIMEOUT", "4s")
            .start()
            .await;
        let user = service.admin();
        let (conversation, agent, report) = long_conversation(&user).await;
        Self {
            normal_user: NormalUser::new(&service.user("normal"), agent, report),
            service,
            user,
            conversation,
            _stub: stub,
        }
    }

    async fn heads_that_never_end(&self) {
        let count = if is_full() { 500 } else { 100 };
        let slow = crowd::slow_heads(self.service.address(), count);
        let kept = self.normal_user.during("heads that never end", slow).await;
        assert_eq!(kept, 0, "connections were kept");
    }

    async fn clients_that_never_read(&self) {
        let (id, key, address) = (&self.conversation, self.user.key(), self.service.address());
        let stream = format!("/api/v1/conversation/{id}/events/stream");
        let download = format!("/api/v1/app-conversations/{id}/download");
        let documents = get("/openapi.json", key).repeat(16);
        let unread = async {
            tokio::join!(
                crowd::never_reading(address, 4, get(&stream, key)),
                crowd::never_reading(address, 1, get(&download, key)),
                crowd::never_reading(address, 8, documents),
            )
        };
        let cut = self
            .normal_user
            .during("clients that never read", unread)
            .await;
        assert_eq!(cut, (4, 1, 8), "connections were kept");
    }

    async fn heads_of_a_megabyte_and_bombs(&self) {
        let (address, key) = (self.service.address(), self.user.key());
        let large = format!("GET /alive HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
        let large = crowd::statuses(address, 20, large.as_bytes());
        let large = self.normal_user.during("heads of 1 MB", large).await;
        let is_refused = |status: &u16| matches!(status, 0 | 400 | 431);
        assert!(large.iter().all(is_refused), "{large:?}");
        let bomb = bomb(key);
        let bombs = crowd::statuses(address, 20, &bomb);
        let bombs = self.normal_user.during("compressed bodies", bombs).await;
        assert!(
            bombs.iter().all(|status| matches!(status, 0 | 415)),
            "{bombs:?}"
        );
    }

    async fn idle_connections(&self, memory: u64) {
        let (address, pid) = (self.service.address(), self.service.pid());
        let count = if is_full() {
            self.connection_capacity().min(10_000)
        } else {
            1_000
        };
        let opened = crowd::idle(address, count);
        let idle = self
            .normal_user
            .during("opening idle connections", opened)
            .await;
        self.normal_user.during("idle connections", sleep(2)).await;
        let (resident_bytes, files) = (resident_bytes(pid).unwrap_or_default(), files_of(pid));
        let (mib, before, open) = (resident_bytes >> 20, memory >> 20, crowd::open(&idle));
        print_line(&format!(
            "{count} idle connections: {open} open, {files} descriptors, resident {mib} MiB, before {before}"
        ));
        assert_eq!(open, count, "connections were not kept");
        assert!((open..2 * open).contains(&files), "{files} for {open}");
        assert!(
            resident_bytes < memory + MAX_MEMORY_BYTES,
            "{memory} {resident_bytes}"
        );
        drop(idle);
    }

    /// The number of connections that the service's limit of open files allows, from its log, without those of others.
    fn connection_capacity(&self) -> usize {
        const OTHERS: usize = 64;
        let log = self.service.log();
        let line = log.split("the limit of open files (").nth(1);
        let capacity = line.and_then(|line| {
            line.split(" allows ")
                .nth(1)?
                .split(' ')
                .next()?
                .parse()
                .ok()
        });
        capacity.map_or(usize::MAX, |capacity: usize| {
            capacity.saturating_sub(OTHERS)
        })
    }

    /// Lasts longer than a minute.
    async fn bodies_and_second_heads_that_never_end(&self) {
        let (address, key) = (self.service.address(), self.user.key());
        let both = async {
            tokio::join!(
                crowd::slow_bodies(address, 200, key),
                crowd::slow_second_heads(address, 200),
                // The service closes slow second heads when new connections arrive.
                new_connections(address),
            )
        };
        let both = self
            .normal_user
            .during("bodies and second heads that never end", both);
        let (bodies, heads, ()) = both.await;
        assert_eq!((bodies, heads), (0, 0), "connections were kept");
    }
}

async fn new_connections(address: SocketAddr) {
    for _ in 0..110 {
        sleep(1).await;
        let request = get_and_close("/alive");
        let answer = crowd::statuses(address, 1, request.as_bytes()).await;
        assert_eq!(answer, [200]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_do_not_delay_others_and_leave_no_resources() {
    let world = World::start().await;
    let pid = world.service.pid();
    world.normal_user.during("no other clients", sleep(2)).await;
    let (files, memory) = (files_of(pid), resident_bytes(pid).unwrap_or_default());
    world.heads_that_never_end().await;
    world.clients_that_never_read().await;
    world.heads_of_a_megabyte_and_bombs().await;
    world.idle_connections(memory).await;
    if is_full() {
        world.bodies_and_second_heads_that_never_end().await;
    }
    world
        .normal_user
        .during("no other clients at the end", sleep(1))
        .await;
    let limit = Duration::from_secs(60);
    let what = "released descriptors";
    wait_until(what, limit, || files_of(pid) <= files + MAX_EXTRA_FILES).await;
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A compressed body that claims to be huge. The service refuses it by its header.
fn bomb(key: &str) -> Vec<u8> {
    let body = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3][..], &[0; 10_000]].concat();
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// If the service closed the connection at once, unread data would reset it, and the client would lose the response.
#[tokio::test]
async fn a_client_that_still_sends_receives_the_error_response() {
    let service = Service::start().await;
    let stream = tokio::net::TcpStream::connect(service.address()).await;
    let (mut answer, mut body) = stream.expect("the service listens").into_split();
    let head = format!(
        "POST /api/v1/settings HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 16777216\r\n\r\n",
        service.admin().key()
    );
    body.write_all(head.as_bytes())
        .await
        .expect("the service reads the head");
    // More than the buffers of a connection hold.
    let chunk = vec![b' '; 64 * 1024];
    for number in 0..256 {
        let sent = body.write_all(&chunk).await;
        sent.unwrap_or_else(|error| panic!("chunk {number}: {error}"));
    }
    let mut response = String::new();
    let read = answer.read_to_string(&mut response).await;
    read.unwrap_or_else(|error| panic!("{response}: {error}"));
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

/// Health checks and reports work while a user exceeds the rate limit and all connections are in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_and_reports_are_served_under_a_flood() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_LOG__LEVEL", "warn")
        // Low enough for a busy machine. Each key has its own limit, so the set-up does not count.
        .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "50")
        .env("WORKSPACE_HTTP__MAX_CONNECTIONS", "64")
        .start()
        .await;
    let (user, address) = (service.admin(), service.address());
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-unused")
        .await;
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox
        .and_then(|sandbox| sandbox.session_api_key)
        .expect("a key");
    let report = format!(
        "POST /api/v1/webhooks/events/{} HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        conversation.id
    );
    // More than the maximum: the service closes idle ones.
    let idle = crowd::idle(address, 200).await;
    let (flooding, started_at) = (service.user("flood"), tokio::time::Instant::now());
    let refused = AtomicU32::new(0);
    let continues = || {
        let passed = started_at.elapsed();
        let is_flood = refused.load(Ordering::Relaxed) > 0;
        passed < Duration::from_secs(4) || (!is_flood && passed < Duration::from_secs(60))
    };
    let flood = (0..32).map(|_| async {
        while continues() {
            // A connection that the service closes is opened again.
            let response =
                flooding.try_call(reqwest::Method::GET, "/api/v1/settings/profiles", None);
            if response.await.is_ok_and(|reply| reply.status == 429) {
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let flood = futures::future::join_all(flood);
    let vital = async {
        let mut served = 0;
        while continues() {
            for path in ["/alive", "/ready"] {
                let request = get_and_close(path);
                let fresh = crowd::responses(address, 1, request.as_bytes()).await;
                let (status, text) = &fresh[0];
                assert!(is_served(*status, text), "{path}: {text}");
            }
            let reports = crowd::statuses(address, 1, report.as_bytes()).await;
            assert_eq!(reports, [200], "a report");
            served += 1;
        }
        served
    };
    let (_, served) = tokio::join!(flood, vital);
    let refused = refused.into_inner();
    print_line(&format!("refused {refused}, served {served}"));
    assert!(refused > 0, "no request was refused, so there was no flood");
    drop(idle);
}

fn get_and_close(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}
