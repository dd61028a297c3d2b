//! Two services on one Postgres, either of which may die at any moment, and so may Postgres.

mod following;
mod replica_pair;
mod rolling;
mod storm;

use std::time::Duration;

use acceptance::Sandboxing;
use acceptance::wait::wait_for;
use serde_json::json;

use crate::replica_pair::{ReplicaPair, ReplicaRequest};

/// A killed replica's work goes on elsewhere within this time (its lease has to run out first). The promise is ten
/// seconds; the rest is for a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(90);

#[tokio::test]
async fn nothing_is_lost_or_done_twice_while_replicas_and_postgres_die() {
    storm::rages(Sandboxing::Process).await;
}

#[tokio::test]
async fn nothing_is_lost_or_done_twice_by_replicas_that_share_an_engine() {
    storm::rages(Sandboxing::docker()).await;
}

/// Either replica shows what the other made, and acts on it wherever it lives.
#[tokio::test]
async fn a_sandbox_is_paused_resumed_and_deleted_through_either_replica() {
    let pair = ReplicaPair::start(&Sandboxing::Process, "").await;
    let user = pair.user("ada").await;
    let started = user.on(0).converse("hello").await;
    let (here, there) = (user.on(0), user.on(1));
    assert_eq!(there.conversation(&started.id).await.id, started.id);
    there.pause(&started.sandbox_id).await;
    here.sandbox_becomes(&started.sandbox_id, "PAUSED", TAKEN_OVER)
        .await;
    there.resume(&started.sandbox_id).await;
    here.sandbox_becomes(&started.sandbox_id, "RUNNING", TAKEN_OVER)
        .await;
    there.say(&started.id, "again").await;
    there.delete_conversation(&started.id).await;
    wait_for("the end of the sandbox", TAKEN_OVER, || async {
        here.sandboxes().await.is_empty().then_some(())
    })
    .await;
}

/// A stream that begins at one replica shows a start that the other one works on.
#[tokio::test]
async fn a_start_is_streamed_from_the_replica_that_does_not_work_on_it() {
    let pair = ReplicaPair::start(&Sandboxing::Process, "").await;
    let user = pair.user("ada").await;
    let sandbox = user.on(0).start_sandbox().await;
    let id = sandbox.id;
    user.on(0).sandbox_becomes(&id, "RUNNING", TAKEN_OVER).await;
    let body = json!({"sandbox_id": id});
    let streamed = user
        .on(1)
        .patient()
        .post("/api/v1/app-conversations/stream-start", &body)
        .await
        .ok();
    let states = streamed.as_array().expect("an array of states");
    assert_eq!(states.last().expect("a state")["status"], "READY");
}

/// What a killed replica was at is finished by the one that shares its engine, without its coming back.
#[tokio::test]
async fn the_work_of_a_dead_replica_goes_on_elsewhere() {
    let mut pair = ReplicaPair::start(&Sandboxing::docker(), "").await;
    let user = pair.user("ada").await;
    let mut tasks = Vec::new();
    for n in 0..4 {
        let ask = ReplicaRequest::start(&format!("take-over-{n}"), "hello");
        tasks.push(user.acknowledged(0, &ask).await);
    }
    pair.kill(0);
    for id in tasks {
        let task = wait_for(
            "the end of a start of a dead replica",
            TAKEN_OVER,
            || async {
                let task = user.on(1).task(&id).await;
                matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
            },
        )
        .await;
        assert_eq!(task.status, "READY", "{task:?}");
    }
    pair.assert_consistent(&[&user]).await;
}
