//! Sandboxes that nobody uses, and sandboxes that are too old. The service looks every 30 s.

use std::time::{Duration, Instant};

use acceptance::wait::wait_for;
use acceptance::world::RECONCILE_TIMEOUT;

use crate::support::configured;

#[tokio::test]
async fn an_idle_sandbox_is_paused_and_one_with_a_running_conversation_is_not() {
    // Half of it is more than this test is late by on a busy machine, or takes between a resume and a run.
    const IDLE: Duration = Duration::from_secs(8);
    let world = configured(|builder| builder.env("WORKSPACE_SANDBOX__IDLE_STOP", "8s")).await;
    let user = &world.user;
    let running = user.converse("HOLD").await;
    user.executed(&running.id, "running").await;
    let idle = user.converse("hello").await;
    user.executed(&idle.id, "finished").await;
    let finished = Instant::now();
    user.sandbox_becomes(&idle.sandbox_id, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(finished.elapsed() > IDLE / 2, "it was paused at once");
    // It has been running for longer than the other one was idle.
    let now = user
        .sandbox(&running.sandbox_id)
        .await
        .expect("it is there");
    assert_eq!(now.status, "RUNNING");
    user.executed(&running.id, "running").await;

    world.stub.go();
    user.executed(&running.id, "finished").await;
    user.sandbox_becomes(&running.sandbox_id, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(world.service.processes().is_empty());
    user.resume(&idle.sandbox_id).await;
    user.say(&idle.id, "go on").await;
    user.executed(&idle.id, "finished").await;
    world.service.assert_no_orphans(&[user]).await;
}

#[tokio::test]
async fn a_sandbox_that_is_too_old_is_deleted_when_its_run_has_ended() {
    // Longer than a start takes on a busy machine.
    let world = configured(|builder| builder.env("WORKSPACE_SANDBOX__LIFETIME", "15s")).await;
    let user = &world.user;
    let conversation = user.converse("HOLD").await;
    user.executed(&conversation.id, "running").await;
    let second = user.converse("hello").await;
    wait_for(
        "the end of the sandbox that is too old",
        RECONCILE_TIMEOUT,
        || async {
            let gone = user.sandbox(&second.sandbox_id).await.is_none();
            gone.then_some(())
        },
    )
    .await;
    // The other one is older, and at work.
    assert!(user.sandbox(&conversation.sandbox_id).await.is_some());
    world.stub.go();
    world.assert_nothing_left().await;
    let left = user.conversation(&conversation.id).await;
    assert_eq!(left.sandbox_status, "MISSING", "{left:?}");
    assert!(!user.events(&conversation.id).await.is_empty());
}
