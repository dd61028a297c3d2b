//! Eight users at two replicas. One replica is killed every few seconds, and Postgres is restarted twice.

use std::collections::BTreeSet;
use std::time::Duration;

use acceptance::wait::wait_for;
use acceptance::{Sandboxing, print_line};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::replica_pair::{ReplicaPair, ReplicaRequest, ReplicaUser, RequestOutcome};

const USERS: usize = 8;
const SANDBOXES: &str = "/api/v1/sandboxes";
const CONVERSATIONS: &str = "/api/v1/app-conversations";
/// Deadline for the recovery after the storm.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Duration and randomness of the storm.
struct StormOptions {
    duration: Duration,
    kill_interval: Duration,
    seed: u64,
}

impl StormOptions {
    fn from_environment() -> Self {
        let number = |name, default| number(name).unwrap_or(default);
        Self {
            duration: Duration::from_secs(number("REPLICAS_SECONDS", 15)),
            kill_interval: Duration::from_secs(5),
            seed: number("REPLICAS_SEED", 1),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "set by `cargo xtask soak`, which starts this suite"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Pseudorandom numbers, equal in every run (Knuth's constants of MMIX).
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.roll(from.len())).cloned()
    }
}

/// The acknowledgements that one user received.
#[derive(Default)]
struct ReportedState {
    /// Start tasks that were acknowledged.
    starts: BTreeSet<String>,
    /// Sandboxes whose deletion was acknowledged.
    deleted: BTreeSet<String>,
    requests: usize,
    unavailable: usize,
    unknown: usize,
}

pub(crate) async fn run(sandboxing: Sandboxing) {
    let options = StormOptions::from_environment();
    let mut pair = ReplicaPair::start(&sandboxing, "").await;
    let mut users: Vec<ReplicaUser> = Vec::new();
    for n in 0..USERS {
        users.push(pair.user(&format!("user-{n}")).await);
    }
    let end = Instant::now() + options.duration;
    let work = join_all(users.iter().enumerate().map(|(n, user)| {
        let seed = options.seed.wrapping_mul(1_000_003) + n as u64;
        send_requests(user, n, SeededRandom(seed), end)
    }));
    let (reported, ()) = tokio::join!(work, kill_replicas(&mut pair, &options, end));
    print_summary(&reported);
    for (user, reported) in users.iter().zip(&reported) {
        assert_settled(user, reported).await;
    }
    let users: Vec<&ReplicaUser> = users.iter().collect();
    pair.assert_consistent(&users).await;
    for user in users {
        assert_events_stored(user).await;
    }
}

/// Kills the replicas in turn, and restarts Postgres after one and two thirds of the time.
async fn kill_replicas(pair: &mut ReplicaPair, options: &StormOptions, end: Instant) {
    let started_at = Instant::now();
    let mut restarts = vec![("immediate", 2), ("fast", 1)];
    for round in 0.. {
        sleep(options.kill_interval).await;
        if Instant::now() >= end {
            return;
        }
        pair.kill(round % 2);
        if let Some(&(mode, parts)) = restarts.last()
            && started_at.elapsed() > options.duration * parts / 3
        {
            restarts.pop();
            pair.postgres.stop(mode);
            sleep(Duration::from_secs(1)).await;
            pair.postgres.resume();
        }
        sleep(Duration::from_millis(500)).await;
        pair.replicas[round % 2].restart().await;
    }
}

async fn send_requests(
    user: &ReplicaUser,
    number: usize,
    mut dice: SeededRandom,
    end: Instant,
) -> ReportedState {
    let mut reported = ReportedState::default();
    for step in 0.. {
        if Instant::now() >= end {
            break;
        }
        let replica = dice.roll(2);
        let own = ids(user, replica, &mut reported).await;
        let request = match dice.roll(8) {
            0..=2 => Some(ReplicaRequest::start(
                &format!("{number}-{step}"),
                "STEPS=3",
            )),
            3 => dice
                .pick(&own)
                .map(|id| ReplicaRequest::post(format!("{SANDBOXES}/{id}/pause"))),
            4 => dice
                .pick(&own)
                .map(|id| ReplicaRequest::post(format!("{SANDBOXES}/{id}/resume"))),
            5 => dice
                .pick(&own)
                .map(|id| ReplicaRequest::delete(format!("{SANDBOXES}/{id}?sandbox_id={id}"))),
            _ => Some(ReplicaRequest::get(CONVERSATIONS)),
        };
        if let Some(request) = request {
            let outcome = user.send(replica, &request).await;
            reported.note(&request, &outcome);
        }
        sleep(Duration::from_millis(50 + 20 * dice.roll(10) as u64)).await;
    }
    reported
}

impl ReportedState {
    fn note(&mut self, request: &ReplicaRequest, outcome: &RequestOutcome) {
        self.requests += 1;
        match outcome {
            RequestOutcome::Responded(200, body) if request.key.is_some() => {
                let id = body["id"].as_str().expect("a task has an id").to_owned();
                self.starts.insert(id);
            }
            RequestOutcome::Responded(200, _) if request.method == reqwest::Method::DELETE => {
                let (_, id) = request
                    .path
                    .split_once("sandbox_id=")
                    .expect("our own path");
                self.deleted.insert(id.to_owned());
            }
            RequestOutcome::Responded(503, _) => self.unavailable += 1,
            RequestOutcome::Responded(..) => {}
            RequestOutcome::Unknown => self.unknown += 1,
        }
    }
}

/// Ids of the user's sandboxes; empty if the store is down.
async fn ids(user: &ReplicaUser, replica: usize, reported: &mut ReportedState) -> Vec<String> {
    let request = ReplicaRequest::get(format!("{SANDBOXES}/search"));
    let outcome = user.send(replica, &request).await;
    reported.note(&request, &outcome);
    let RequestOutcome::Responded(200, page) = outcome else {
        return Vec::new();
    };
    let items = page["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["id"].as_str().map(str::to_owned))
        .collect()
}

/// Every acknowledged start has finished once, with a cause if it failed. Deleted sandboxes stay deleted.
async fn assert_settled(user: &ReplicaUser, reported: &ReportedState) {
    for id in &reported.starts {
        let task = wait_for("a finished start", SETTLE_TIMEOUT, || async {
            let path = format!("{CONVERSATIONS}/start-tasks?ids={id}");
            let found = user.client(0).get(&path).await.ok();
            // Tasks of deleted conversations are deleted, too.
            let ended = found[0].is_null()
                || found[0]["status"] == "READY"
                || found[0]["status"] == "ERROR";
            ended.then(|| found[0].clone())
        })
        .await;
        if task["status"] == "ERROR" {
            let cause = task["detail"].as_str().unwrap_or_default();
            assert!(!cause.is_empty(), "a start failed without a cause: {task}");
        }
    }
    for sandbox in user.client(1).sandboxes().await {
        assert!(
            !reported.deleted.contains(&sandbox.id),
            "a deleted sandbox exists: {sandbox:?}"
        );
    }
    let tasks = user
        .client(0)
        .get_all_pages(&format!("{CONVERSATIONS}/start-tasks/search"))
        .await;
    let conversations: Vec<&str> = tasks
        .iter()
        .filter_map(|task| task["app_conversation_id"].as_str())
        .collect();
    let distinct: BTreeSet<&&str> = conversations.iter().collect();
    assert_eq!(
        distinct.len(),
        conversations.len(),
        "two start tasks created the same conversation"
    );
}

/// The store has each event of every running conversation once.
async fn assert_events_stored(user: &ReplicaUser) {
    for conversation in user.client(0).conversations().await {
        if conversation.sandbox_status != "RUNNING" {
            continue;
        }
        let theirs = user.client(0).events_at_agent_server(&conversation).await;
        let theirs: BTreeSet<String> = theirs.iter().map(id).collect();
        let ours = wait_for("all events of a conversation", SETTLE_TIMEOUT, || async {
            let ours: Vec<String> = user
                .client(1)
                .events(&conversation.id)
                .await
                .iter()
                .map(id)
                .collect();
            theirs.iter().all(|id| ours.contains(id)).then_some(ours)
        })
        .await;
        let distinct: BTreeSet<&String> = ours.iter().collect();
        assert_eq!(distinct.len(), ours.len(), "an event is stored twice");
    }
}

fn id(event: &Value) -> String {
    event["id"].as_str().unwrap_or_default().to_owned()
}

fn print_summary(reported: &[ReportedState]) {
    let sum = |of: fn(&ReportedState) -> usize| reported.iter().map(of).sum::<usize>();
    print_line(&format!(
        "{} requests, {} starts acknowledged, {} answered 503, {} without a response from either replica",
        sum(|t| t.requests),
        sum(|t| t.starts.len()),
        sum(|t| t.unavailable),
        sum(|t| t.unknown),
    ));
}
