//! Two services on one Postgres. Tests kill either service, and Postgres.

mod budgets;
mod following;
mod hosts;
mod replica_pair;
mod rolling;
mod storm;

use std::time::Duration;

use acceptance::Sandboxing;
use acceptance::wait::wait_for;
use serde_json::json;

use crate::replica_pair::{ReplicaPair, ReplicaRequest};

/// Deadline for another replica to take over work, after the lease expires: far longer than a busy machine needs.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(90);

#[tokio::test]
async fn killed_replicas_and_postgres_lose_and_duplicate_nothing() {
    storm::run(Sandboxing::UnconfinedProcess).await;
}

#[tokio::test]
async fn killed_replicas_that_share_an_engine_lose_and_duplicate_nothing() {
    storm::run(Sandboxing::docker()).await;
}

/// Each replica shows the sandboxes of the other, and acts on them.
#[tokio::test]
async fn a_sandbox_is_paused_resumed_and_deleted_through_either_replica() {
    let pair = ReplicaPair::start(&Sandboxing::UnconfinedProcess, "").await;
    let user = pair.user("ada").await;
    let started = user.client(0).converse("hello").await;
    let (first, second) = (user.client(0), user.client(1));
    assert_eq!(second.conversation(&started.id).await.id, started.id);
    second.pause(&started.sandbox_id).await;
    first
        .wait_for_sandbox_status(&started.sandbox_id, "PAUSED", TAKEOVER_TIMEOUT)
        .await;
    second.resume(&started.sandbox_id).await;
    first
        .wait_for_sandbox_status(&started.sandbox_id, "RUNNING", TAKEOVER_TIMEOUT)
        .await;
    second.send_message(&started.id, "again").await;
    second.delete_conversation(&started.id).await;
    wait_for("the end of the sandbox", TAKEOVER_TIMEOUT, || async {
        first.sandboxes().await.is_empty().then_some(())
    })
    .await;
}

/// The stream is at one replica, and the other one works on the start.
#[tokio::test]
async fn either_replica_streams_the_states_of_a_start() {
    let pair = ReplicaPair::start(&Sandboxing::UnconfinedProcess, "").await;
    let user = pair.user("ada").await;
    let sandbox = user.client(0).start_sandbox().await;
    let id = sandbox.id;
    user.client(0)
        .wait_for_sandbox_status(&id, "RUNNING", TAKEOVER_TIMEOUT)
        .await;
    let body = json!({"sandbox_id": id});
    let streamed = user
        .client(1)
        .with_long_timeout()
        .post("/api/v1/app-conversations/stream-start", &body)
        .await
        .ok();
    let states = streamed.as_array().expect("an array of states");
    assert_eq!(states.last().expect("a state")["status"], "READY");
}

/// A replica that shares the engine completes the starts of a killed one, which does not restart.
#[tokio::test]
async fn another_replica_completes_the_starts_of_a_killed_one() {
    let mut pair = ReplicaPair::start(&Sandboxing::docker(), "").await;
    let user = pair.user("ada").await;
    let mut tasks = Vec::new();
    for n in 0..4 {
        let request = ReplicaRequest::start(&format!("take-over-{n}"), "hello");
        tasks.push(user.send_until_acknowledged(0, &request).await);
    }
    pair.kill(0);
    for id in tasks {
        let task = wait_for(
            "a finished start of the killed replica",
            TAKEOVER_TIMEOUT,
            || async {
                let task = user.client(1).task(&id).await;
                matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
            },
        )
        .await;
        assert_eq!(task.status, "READY", "{task:?}");
    }
    pair.assert_consistent(&[&user]).await;
}
