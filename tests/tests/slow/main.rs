//! Clients that are slow on purpose, against the real binary: nobody else notices, and nothing is left of them.
//!
//! In CI with few of them; `cargo xtask soak --slow` takes 10,000 connections and the deadlines that last longer.

mod bystander;
mod crowd;
mod memory;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use acceptance::agent_server::variable_of;
use acceptance::client::Client;
use acceptance::processes::{raise_file_limit, resident};
use acceptance::wait::wait_until;
use acceptance::{Service, Stub, figures, print_line};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bystander::{NormalUser, is_served};

/// Resident memory that all slow clients together may cost.
const MEMORY: u64 = 400 << 20;
/// Descriptors that differ from the start: kept-alive connections of the bystander, and of the store.
const FILES: usize = 40;
/// What a client that never reads would get, had it read.
const EVENTS: usize = 48;
const EVENT: usize = 256 * 1024;

fn is_full() -> bool {
    variable_of("SLOW_FULL").is_some()
}

fn files_of(pid: u32) -> usize {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd"));
    listed.expect("the service runs").count()
}

/// The path of a conversation with more events than fit into the buffers of a connection, and what reports there.
async fn long_conversation(user: &Client) -> (String, Client, String) {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-unused")
        .await;
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|it| it.session_api_key);
    let agent = user.with_key(&key.expect("a running sandbox has a key"));
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    for number in 0..EVENTS {
        let mut event = figures::event(&format!("slow-{number}"), "2026-11-21T10:00:00.123456");
        // Not to be compressed.
        let text: Vec<String> = (0..EVENT / 20)
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

/// The service, somebody who uses it, and a conversation that nobody can take at once.
struct World {
    service: Service,
    user: Client,
    conversation: String,
    bystander: NormalUser,
    _stub: Stub,
}

impl World {
    async fn start() -> Self {
        raise_file_limit();
        let stub = Stub::new();
        let service = Service::builder()
            .stub(&stub)
            .env(
                "WORKSPACE_LOG__LEVEL",
                "warn,agent_workspace::connections=info",
            )
            .env("WORKSPACE_HTTP__SEND_TIMEOUT", "4s")
            .start()
            .await;
        let user = service.admin();
        let (conversation, agent, report) = long_conversation(&user).await;
        Self {
            bystander: NormalUser::new(&service.user("bystander"), agent, report),
            service,
            user,
            conversation,
            _stub: stub,
        }
    }

    async fn heads_that_never_end(&self) {
        let count = if is_full() { 500 } else { 100 };
        let slow = crowd::slow_heads(self.service.address(), count);
        let kept = self.bystander.during("heads that never end", slow).await;
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
            .bystander
            .during("clients that never read", unread)
            .await;
        assert_eq!(cut, (4, 1, 8), "connections were kept");
    }

    async fn heads_of_a_megabyte_and_bombs(&self) {
        let (address, key) = (self.service.address(), self.user.key());
        let large = format!("GET /alive HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
        let large = crowd::statuses(address, 20, large.as_bytes());
        let large = self.bystander.during("heads of 1 MB", large).await;
        let is_refused = |status: &u16| matches!(status, 0 | 400 | 431);
        assert!(large.iter().all(is_refused), "{large:?}");
        let bomb = bomb(key);
        let bombs = crowd::statuses(address, 20, &bomb);
        let bombs = self.bystander.during("compressed bodies", bombs).await;
        assert!(bombs.iter().all(|it| matches!(it, 0 | 415)), "{bombs:?}");
    }

    async fn idle_connections(&self, memory: u64) {
        let (address, pid) = (self.service.address(), self.service.pid());
        let count = if is_full() {
            self.room().min(10_000)
        } else {
            1_000
        };
        let made = crowd::idle(address, count);
        let idle = self
            .bystander
            .during("idle connections are made", made)
            .await;
        self.bystander.during("idle connections", sleep(2)).await;
        let (most, files) = (resident(pid).unwrap_or_default(), files_of(pid));
        let (mib, before, open) = (most >> 20, memory >> 20, crowd::open(&idle));
        print_line(&format!(
            "{count} of them: {open} open, {files} descriptors, resident {mib} MiB, before {before}"
        ));
        assert_eq!(open, count, "connections were not kept");
        assert!((open..2 * open).contains(&files), "{files} for {open}");
        assert!(most < memory + MEMORY, "{memory} {most}");
        drop(idle);
    }

    /// As many connections as the service has files for, by what it says at its start, beside those of others.
    fn room(&self) -> usize {
        const OTHERS: usize = 64;
        let log = self.service.log();
        let said = log.split("the limit of open files (").nth(1);
        let said = said.and_then(|it| it.split(" allows ").nth(1)?.split(' ').next()?.parse().ok());
        said.map_or(usize::MAX, |most: usize| most.saturating_sub(OTHERS))
    }

    /// Takes more than a minute.
    async fn bodies_and_second_heads_that_never_end(&self) {
        let (address, key) = (self.service.address(), self.user.key());
        let both = async {
            tokio::join!(
                crowd::slow_bodies(address, 200, key),
                crowd::slow_second_heads(address, 200),
                // Whose next heads take too long is seen when others come.
                new_connections(address),
            )
        };
        let both = self
            .bystander
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
async fn slow_clients_cost_others_nothing_and_leave_nothing_behind() {
    let world = World::start().await;
    let pid = world.service.pid();
    world.bystander.during("nobody else", sleep(2)).await;
    let (files, memory) = (files_of(pid), resident(pid).unwrap_or_default());
    world.heads_that_never_end().await;
    world.clients_that_never_read().await;
    world.heads_of_a_megabyte_and_bombs().await;
    world.idle_connections(memory).await;
    if is_full() {
        world.bodies_and_second_heads_that_never_end().await;
    }
    world.bystander.during("nobody else, again", sleep(1)).await;
    let limit = Duration::from_secs(60);
    let what = "descriptors are given back";
    wait_until(what, limit, || files_of(pid) <= files + FILES).await;
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A body that would be 10 GiB, had it been unpacked: what it says of itself is enough to refuse it.
fn bomb(key: &str) -> Vec<u8> {
    let body = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3][..], &[0; 10_000]].concat();
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Were the connection closed at once, what is still on its way would break it, and the answer would be lost.
#[tokio::test]
async fn whoever_still_sends_gets_the_answer_that_says_why() {
    let service = Service::start().await;
    let stream = tokio::net::TcpStream::connect(service.address()).await;
    let (mut answer, mut body) = stream.expect("it listens").into_split();
    let head = format!(
        "POST /api/v1/settings HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 16777216\r\n\r\n",
        service.admin().key()
    );
    body.write_all(head.as_bytes()).await.expect("it is read");
    // More than the buffers of a connection hold.
    let some = vec![b' '; 64 * 1024];
    for piece in 0..256 {
        let sent = body.write_all(&some).await;
        sent.unwrap_or_else(|error| panic!("{piece}: {error}"));
    }
    let mut said = String::new();
    let read = answer.read_to_string(&mut said).await;
    read.unwrap_or_else(|error| panic!("{said}: {error}"));
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
}

/// A user who floods, and connections as many as there may be: health and reports go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_lives_by_is_served_under_a_flood() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_LOG__LEVEL", "warn")
        // Also a busy machine answers more, and each key has its own: the set-up is not counted with the flood.
        .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "50")
        .env("WORKSPACE_HTTP__MAX_CONNECTIONS", "64")
        .start()
        .await;
    let (user, address) = (service.admin(), service.address());
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-unused")
        .await;
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|it| it.session_api_key).expect("a key");
    let report = format!(
        "POST /api/v1/webhooks/events/{} HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        conversation.id
    );
    // More than there may be: those that are idle make room.
    let idle = crowd::idle(address, 200).await;
    let (flooding, began) = (service.user("flood"), tokio::time::Instant::now());
    let refused = AtomicU32::new(0);
    let goes_on = || {
        let passed = began.elapsed();
        let is_flood = refused.load(Ordering::Relaxed) > 0;
        passed < Duration::from_secs(4) || (!is_flood && passed < Duration::from_secs(60))
    };
    let flood = (0..32).map(|_| async {
        while goes_on() {
            // One that is closed to make room is asked again.
            let asked = flooding.try_call(reqwest::Method::GET, "/api/v1/settings/profiles", None);
            if asked.await.is_ok_and(|it| it.status == 429) {
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let flood = futures::future::join_all(flood);
    let vital = async {
        let mut served = 0;
        while goes_on() {
            for path in ["/alive", "/ready"] {
                let request = get_and_close(path);
                let fresh = crowd::answers(address, 1, request.as_bytes()).await;
                let (status, text) = &fresh[0];
                assert!(is_served(*status, text), "{path}: {text}");
            }
            let taken = crowd::statuses(address, 1, report.as_bytes()).await;
            assert_eq!(taken, [200], "a report");
            served += 1;
        }
        served
    };
    let (_, served) = tokio::join!(flood, vital);
    let refused = refused.into_inner();
    print_line(&format!("refused {refused}, served {served}"));
    assert!(refused > 0, "it was a flood");
    drop(idle);
}

fn get_and_close(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}
