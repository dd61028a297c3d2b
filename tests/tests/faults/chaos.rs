//! Many things at once, in an order that a number chooses: whatever happens, rows and processes agree in the end, and
//! nothing is answered with an internal error.

use std::collections::BTreeMap;
use std::time::Duration;

use acceptance::Client;
use acceptance::Sandboxing;
use acceptance::client::{Conversation, text};
use acceptance::wait::wait_for;
use futures::future::join_all;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{RECONCILE_TIMEOUT, World};

const ROUNDS: usize = 12;
/// Requests of one round, sent at once.
const MAX_CONCURRENT: usize = 6;

/// Numbers that look random and are the same in every run (the constants are Knuth's, of MMIX).
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.roll(from.len()))
    }
}

pub(crate) async fn rows_and_processes_agree_after_any_storm(sandboxing: Sandboxing) {
    let seeds: &[u64] = match sandboxing {
        Sandboxing::Process => &[1, 2, 3],
        // Containers take seconds where processes take tenths.
        Sandboxing::Docker(_) => &[4],
    };
    for &seed in seeds {
        let mut world = World::on(&sandboxing, "", |builder| {
            builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "6")
        })
        .await;
        let mut dice = SeededRandom(seed);
        for _ in 0..ROUNDS {
            round(&mut world, &mut dice).await;
        }
        settle(&world).await;
    }
}

async fn round(world: &mut World, dice: &mut SeededRandom) {
    let conversations = world.user.conversations().await;
    let conversations: Vec<String> = conversations.into_iter().map(|c| c.id).collect();
    let sandboxes: Vec<String> = world
        .user
        .sandboxes()
        .await
        .into_iter()
        .map(|sandbox| sandbox.id)
        .collect();
    let requests: Vec<_> = (0..MAX_CONCURRENT)
        .filter_map(|_| request(dice, &conversations, &sandboxes))
        .collect();
    let (kills_service, kills_sandbox) = (dice.roll(3) == 0, dice.roll(4) == 0);
    let user = world.user.clone();
    let storm = join_all(requests.iter().map(|request| send(&user, request)));
    if kills_service {
        // Cut off wherever they are.
        let patience = Duration::from_millis(u64::try_from(dice.roll(40)).unwrap_or(0));
        let _ = tokio::time::timeout(patience, storm).await;
        world.service.kill9();
        world.service.restart().await;
    } else {
        storm.await;
    }
    if kills_sandbox && let Some(process) = dice.pick(&world.service.agent_servers()) {
        process.signal(Signal::KILL);
    }
}

type Request = (Method, String, Value);

fn request(
    dice: &mut SeededRandom,
    conversations: &[String],
    sandboxes: &[String],
) -> Option<Request> {
    let starts = "/api/v1/app-conversations".to_owned();
    let message = json!({"content": text(["hello", "DIE", "STEPS=30"][dice.roll(3)]), "run": true});
    Some(match dice.roll(10) {
        0..=2 => (Method::POST, starts, json!({"initial_message": message})),
        3 => {
            let sandbox = dice.pick(sandboxes)?;
            let body = json!({"initial_message": message, "sandbox_id": sandbox});
            (Method::POST, starts, body)
        }
        4 | 5 => {
            let path = format!("{starts}/{}/send-message", dice.pick(conversations)?);
            (Method::POST, path, message)
        }
        6 => (
            Method::DELETE,
            format!("{starts}/{}", dice.pick(conversations)?),
            json!({}),
        ),
        7 | 8 => {
            let verb = ["pause", "resume"][dice.roll(2)];
            let path = format!("/api/v1/sandboxes/{}/{verb}", dice.pick(sandboxes)?);
            (Method::POST, path, json!({}))
        }
        _ => {
            let id = dice.pick(sandboxes)?;
            let path = format!("/api/v1/sandboxes/{id}?sandbox_id={id}");
            (Method::DELETE, path, json!({}))
        }
    })
}

async fn send(user: &Client, (method, path, body): &Request) {
    // It may be cut off.
    if let Ok(reply) = user.try_call(method.clone(), path, Some(body)).await {
        let is_documented = reply.status < 500 || matches!(reply.status, 502 | 503);
        assert!(is_documented, "{method} {path}: {reply:?}");
    }
}

/// Waits until every start has ended and every sandbox is what its row says.
async fn settle(world: &World) {
    wait_for("the end of all starts", RECONCILE_TIMEOUT, || async {
        let tasks = world
            .user
            .all("/api/v1/app-conversations/start-tasks/search")
            .await;
        let ended = |task: &Value| task["status"] == "READY" || task["status"] == "ERROR";
        tasks.iter().all(ended).then_some(())
    })
    .await;
    let deadline = tokio::time::Instant::now() + RECONCILE_TIMEOUT;
    while let Err(difference) = agree(world).await {
        assert!(tokio::time::Instant::now() < deadline, "{difference}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.service.assert_no_orphans(&[&world.user]).await;
    // A run is ended after its sandbox, in a step of its own.
    wait_for(
        "the end of all runs without a sandbox",
        RECONCILE_TIMEOUT,
        || async {
            let fits = |it: &Conversation| {
                it.execution_status.as_deref() != Some("running") || it.sandbox_status == "RUNNING"
            };
            let all = world.user.conversations().await;
            all.iter().all(fits).then_some(())
        },
    )
    .await;
}

/// Whether a RUNNING sandbox has one agent server, and any other none.
async fn agree(world: &World) -> Result<(), String> {
    let mut servers: BTreeMap<String, usize> = BTreeMap::new();
    for process in world.service.agent_servers() {
        *servers.entry(process.sandbox).or_default() += 1;
    }
    for sandbox in world.user.sandboxes().await {
        let found = servers.remove(&sandbox.id).unwrap_or(0);
        let expected = usize::from(sandbox.status == "RUNNING");
        if found != expected || sandbox.status == "STARTING" {
            return Err(format!("{found} processes of {sandbox:?}"));
        }
    }
    let rows = world.user.sandboxes().await;
    let mut directories = world.service.sandbox_directories();
    directories.retain(|name| rows.iter().all(|sandbox| sandbox.id != *name));
    if servers.is_empty() && directories.is_empty() {
        return Ok(());
    }
    Err(format!(
        "without a row: processes of {servers:?}, directories {directories:?}"
    ))
}
