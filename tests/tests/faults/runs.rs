//! Interrupted runs and lost webhook reports.

use acceptance::Sandboxing;
use acceptance::processes::resident_bytes;
use acceptance::wait::{wait_for, wait_until};
use rustix::process::Signal;

use crate::support::{NOTICE_TIMEOUT, RECONCILE_TIMEOUT, World, wait_for_messages_and_runs};

pub(crate) async fn agent_server_that_dies_in_a_run_is_reported_as_error_and_can_be_resumed(
    sandboxing: Sandboxing,
) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let user = &world.user;
    let conversation = user.converse("DIE").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    let failed = user
        .wait_for_sandbox_status(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    assert!(failed.status_detail.is_some_and(|cause| !cause.is_empty()));
    assert_eq!(user.conversation(id).await.sandbox_status, "ERROR");
    let path = format!("/api/v1/app-conversations/{id}/send-message");
    let body = serde_json::json!({"content": [{"type": "text", "text": "hello?"}]});
    assert_eq!(user.post(&path, &body).await.status, 503);

    user.resume(sandbox).await;
    user.wait_for_execution_status(id, "error").await;
    user.send_message(id, "go on").await;
    user.wait_for_execution_status(id, "finished").await;
    // Events of the first message may be lost with the agent server.
    wait_for_messages_and_runs(user, id, 2, 1).await;
    world.service.assert_no_orphans(&[user]).await;
}

pub(crate) async fn events_of_a_downtime_are_fetched_after_the_restart(sandboxing: Sandboxing) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let conversation = world.user.converse("HOLD STEPS=250").await;
    world.service.kill9();
    world.stub.continue_runs();
    wait_until("the end of the run", RECONCILE_TIMEOUT, || {
        let file = world
            .service
            .workspace_file(&conversation.sandbox_id, "stub.txt");
        file.is_some()
    })
    .await;
    world.service.restart().await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    // More than two pages of the agent server's log: message, running, 250 actions, finish, finished. Its last reports may arrive
    // before the service has fetched the others.
    wait_for("all of its events", RECONCILE_TIMEOUT, || async {
        let events = world.user.events(&conversation.id).await;
        (events.len() >= 254).then_some(())
    })
    .await;
    let events = wait_for_messages_and_runs(&world.user, &conversation.id, 1, 1).await;
    assert_eq!(events.len(), 254);
    assert_eq!(world.user.count_events(&conversation.id).await, 254);
    world.service.assert_no_orphans(&[&world.user]).await;
}

#[tokio::test]
async fn sandbox_without_webhooks_is_polled() {
    let world = World::with_faults("no-webhooks").await;
    let conversation = world.user.converse("STEPS=3").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    wait_for_messages_and_runs(&world.user, &conversation.id, 1, 1).await;
}

#[tokio::test]
async fn garbled_and_huge_responses_do_not_harm_the_service() {
    for fault in ["read-garbage", "read-huge"] {
        let world = World::with_faults(fault).await;
        let conversation = world.user.converse("hello").await;
        world
            .user
            .wait_for_execution_status(&conversation.id, "finished")
            .await;
        assert_eq!(world.user.get("/ready").await.status, 200, "{fault}");
        let memory = resident_bytes(world.service.pid()).expect("the service does not run");
        assert!(memory < 300 << 20, "{fault}: {memory} bytes of memory");
        world.stub.set_faults("");
        let second = world.user.converse("hello again").await;
        world
            .user
            .wait_for_execution_status(&second.id, "finished")
            .await;
    }
}

pub(crate) async fn hanging_sandbox_does_not_delay_others(sandboxing: Sandboxing) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let user = &world.user;
    let hanging = user.converse("one").await;
    user.wait_for_execution_status(&hanging.id, "finished")
        .await;
    let stopped = world.service.agent_servers();
    for process in &stopped {
        process.signal(Signal::STOP);
    }
    let other = user.converse("two").await;
    user.wait_for_execution_status(&other.id, "finished").await;
    assert_eq!(user.conversations().await.len(), 2);
    // The sandbox must end although its agent server does not respond.
    user.delete_conversation(&hanging.id).await;
    wait_for(
        "the end of the hanging sandbox",
        RECONCILE_TIMEOUT,
        || async {
            user.sandbox(&hanging.sandbox_id)
                .await
                .is_none()
                .then_some(())
        },
    )
    .await;
    wait_until("the end of its process", RECONCILE_TIMEOUT, || {
        world.service.agent_servers().len() == 1
    })
    .await;
    world.service.assert_no_orphans(&[user]).await;
}

pub(crate) async fn stopped_service_adopts_its_sandboxes_at_the_next_start(sandboxing: Sandboxing) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let conversation = world.user.converse("HOLD").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "running")
        .await;
    let before = world.service.agent_servers();
    world.service.stop().await;
    world.service.restart().await;
    world.stub.continue_runs();
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    assert_eq!(
        world.service.agent_servers(),
        before,
        "the agent server must be the same process"
    );
    world.user.send_message(&conversation.id, "more").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    wait_for_messages_and_runs(&world.user, &conversation.id, 2, 2).await;
    assert_eq!(world.stub.starts(), 1);
}

pub(crate) async fn sandbox_that_ended_during_a_downtime_is_reported_as_error(
    sandboxing: Sandboxing,
) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let conversation = world.user.converse("HOLD").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "running")
        .await;
    world.service.kill9();
    for process in world.service.processes() {
        process.signal(Signal::KILL);
    }
    wait_until(
        "the end of the sandbox's process",
        RECONCILE_TIMEOUT,
        || world.service.processes().is_empty(),
    )
    .await;
    world.service.restart().await;
    let sandbox = &conversation.sandbox_id;
    let failed = world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", RECONCILE_TIMEOUT)
        .await;
    assert!(failed.status_detail.is_some_and(|cause| !cause.is_empty()));
    world.user.resume(sandbox).await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "error")
        .await;
    world.user.send_message(&conversation.id, "go on").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
}
