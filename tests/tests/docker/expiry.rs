//! Idle sandboxes, and sandboxes past their lifetime. The service checks both every 30 s.

use std::time::{Duration, Instant};

use acceptance::wait::wait_for;
use acceptance::world::RECONCILE_TIMEOUT;

use crate::support::configured;

#[tokio::test]
async fn idle_sandbox_is_paused_unless_its_conversation_runs() {
    // Half of it exceeds the delay of this test on a busy machine, and the time between a resume and a run.
    const IDLE_TIMEOUT: Duration = Duration::from_secs(8);
    let world = configured(|builder| builder.env("WORKSPACE_SANDBOX__IDLE_STOP", "8s")).await;
    let user = &world.user;
    let running = user.converse("HOLD").await;
    user.wait_for_execution_status(&running.id, "running").await;
    let idle = user.converse("hello").await;
    user.wait_for_execution_status(&idle.id, "finished").await;
    let finished = Instant::now();
    user.wait_for_sandbox_status(&idle.sandbox_id, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(
        finished.elapsed() > IDLE_TIMEOUT / 2,
        "the sandbox was paused before its idle time"
    );
    // Its run has lasted longer than the other sandbox was idle.
    let now = user
        .sandbox(&running.sandbox_id)
        .await
        .expect("the sandbox is missing");
    assert_eq!(now.status, "RUNNING");
    user.wait_for_execution_status(&running.id, "running").await;

    world.stub.continue_runs();
    user.wait_for_execution_status(&running.id, "finished")
        .await;
    user.wait_for_sandbox_status(&running.sandbox_id, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(world.service.processes().is_empty());
    user.resume(&idle.sandbox_id).await;
    user.send_message(&idle.id, "go on").await;
    user.wait_for_execution_status(&idle.id, "finished").await;
    world.service.assert_no_orphans(&[user]).await;
}

#[tokio::test]
async fn expired_sandbox_is_deleted_after_its_run_ends() {
    // Longer than a start takes on a busy machine.
    let world = configured(|builder| builder.env("WORKSPACE_SANDBOX__LIFETIME", "15s")).await;
    let user = &world.user;
    let conversation = user.converse("HOLD").await;
    user.wait_for_execution_status(&conversation.id, "running")
        .await;
    let second = user.converse("hello").await;
    wait_for(
        "the deletion of the expired sandbox",
        RECONCILE_TIMEOUT,
        || async {
            let gone = user.sandbox(&second.sandbox_id).await.is_none();
            gone.then_some(())
        },
    )
    .await;
    // The other sandbox is older, but its run has not ended.
    assert!(user.sandbox(&conversation.sandbox_id).await.is_some());
    world.stub.continue_runs();
    world.assert_nothing_left().await;
    let left = user.conversation(&conversation.id).await;
    assert_eq!(left.sandbox_status, "MISSING", "{left:?}");
    assert!(!user.events(&conversation.id).await.is_empty());
}
