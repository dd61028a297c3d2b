//! Concurrent random requests and kills, reproducible by a seed: afterwards rows and processes agree, and no request was answered
//! with an internal error.

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
use tokio::time::{sleep, timeout};

use crate::support::{RECONCILE_TIMEOUT, World};

const ROUNDS: usize = 12;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Concurrent requests of one round.
const MAX_CONCURRENT: usize = 6;

/// Pseudo-random numbers that are the same in every run (the constants are those of Knuth's MMIX).
struct SeededDice(u64);

impl SeededDice {
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

pub(crate) async fn rows_and_processes_agree_after_random_requests_and_kills(
    sandboxing: Sandboxing,
) {
    let seeds: &[u64] = match sandboxing {
        Sandboxing::Process | Sandboxing::UnconfinedProcess => &[1, 2, 3],
        // Containers take seconds where processes take tenths of a second.
        Sandboxing::Docker(_) => &[4],
    };
    for &seed in seeds {
        let mut world = World::with_sandboxing(&sandboxing, "", |builder| {
            builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "6")
        })
        .await;
        let mut dice = SeededDice(seed);
        for _ in 0..ROUNDS {
            play_round(&mut world, &mut dice).await;
        }
        settle(&world).await;
    }
}

async fn play_round(world: &mut World, dice: &mut SeededDice) {
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
        .filter_map(|_| random_request(dice, &conversations, &sandboxes))
        .collect();
    let (kills_service, kills_sandbox) = (dice.roll(3) == 0, dice.roll(4) == 0);
    let user = world.user.clone();
    let burst = join_all(requests.iter().map(|request| send(&user, request)));
    if kills_service {
        // Kills the service at a random point of the requests.
        let cut_off = Duration::from_millis(u64::try_from(dice.roll(40)).unwrap_or(0));
        let _ = timeout(cut_off, burst).await;
        world.service.kill9();
        world.service.restart().await;
    } else {
        burst.await;
    }
    if kills_sandbox && let Some(process) = dice.pick(&world.service.agent_servers()) {
        process.signal(Signal::KILL);
    }
}

type Request = (Method, String, Value);

fn random_request(
    dice: &mut SeededDice,
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
    // A killed service does not answer.
    if let Ok(reply) = user.try_call(method.clone(), path, Some(body)).await {
        let is_documented = reply.status < 500 || matches!(reply.status, 502 | 503);
        assert!(is_documented, "{method} {path}: {reply:?}");
    }
}

/// Waits until every start has ended and rows and processes agree.
async fn settle(world: &World) {
    wait_for("the end of all starts", RECONCILE_TIMEOUT, || async {
        let tasks = world
            .user
            .get_all_pages("/api/v1/app-conversations/start-tasks/search")
            .await;
        let ended = |task: &Value| task["status"] == "READY" || task["status"] == "ERROR";
        tasks.iter().all(ended).then_some(())
    })
    .await;
    let mut difference = String::new();
    let agreed = timeout(RECONCILE_TIMEOUT, async {
        while let Err(found) = compare_rows_and_processes(world).await {
            difference = found;
            sleep(POLL_INTERVAL).await;
        }
    })
    .await;
    assert!(agreed.is_ok(), "rows and processes differ: {difference}");
    world.service.assert_no_orphans(&[&world.user]).await;
    // The service ends the run of an ended sandbox in a later step.
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

/// Whether each RUNNING sandbox has one agent server and every other sandbox none; the difference otherwise.
async fn compare_rows_and_processes(world: &World) -> Result<(), String> {
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
