//! `kill -9` of the service at many points of a start.

use std::time::{Duration, Instant};

use acceptance::Sandboxing;
use acceptance::wait::wait_until;
use rustix::process::Signal;

use crate::support::{
    NOTICE_TIMEOUT, RECONCILE_TIMEOUT, World, count_user_messages, wait_for_messages_and_runs,
};

/// After the response to POST. A start with the stub takes tens of milliseconds.
const KILL_POINTS_MILLIS: [u64; 12] = [0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 60, 90];
/// A start in a container takes hundreds of milliseconds. Fewer points, because a start fails after ten interruptions.
const CONTAINER_KILL_POINTS_MILLIS: [u64; 8] = [0, 20, 60, 120, 200, 300, 450, 700];

fn kill_points(sandboxing: &Sandboxing) -> &'static [u64] {
    match sandboxing {
        Sandboxing::Process | Sandboxing::UnconfinedProcess => &KILL_POINTS_MILLIS,
        Sandboxing::Docker(_) => &CONTAINER_KILL_POINTS_MILLIS,
    }
}

pub(crate) async fn accepted_start_completes_exactly_once_after_a_kill_at_any_point(
    sandboxing: Sandboxing,
) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100")
    })
    .await;
    let mut tasks = Vec::new();
    let points = kill_points(&sandboxing);
    for &point in points {
        tasks.push(world.user.start_with("hello").await);
        let kill_at = Instant::now() + Duration::from_millis(point);
        // No event marks these points; what matters is that they are spread over the start.
        tokio::time::sleep_until(kill_at.into()).await;
        world.service.kill9();
        world.service.restart().await;
    }
    for task in &tasks {
        let conversation = world.user.wait_until_ready(task).await;
        world
            .user
            .wait_for_execution_status(&conversation.id, "finished")
            .await;
        wait_for_messages_and_runs(&world.user, &conversation.id, 1, 1).await;
    }
    assert_eq!(world.user.conversations().await.len(), points.len());
    assert_eq!(world.service.agent_servers().len(), points.len());
    world.service.assert_no_orphans(&[&world.user]).await;
}

pub(crate) async fn accepted_deletion_completes_after_a_kill_at_any_point(sandboxing: Sandboxing) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    for &point in kill_points(&sandboxing).iter().step_by(2) {
        let conversation = world.user.converse("hello").await;
        world.user.delete_conversation(&conversation.id).await;
        let kill_at = Instant::now() + Duration::from_millis(point);
        tokio::time::sleep_until(kill_at.into()).await;
        world.service.kill9();
        world.service.restart().await;
        assert!(
            world
                .user
                .find_conversation(&conversation.id)
                .await
                .is_none()
        );
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn create_request_in_progress_is_not_repeated_after_a_restart() {
    let mut world = World::with_faults("create-slow").await;
    let task = world.user.start_with("hello").await;
    wait_until("the request to the agent server", RECONCILE_TIMEOUT, || {
        !world.stub.creates().is_empty()
    })
    .await;
    world.service.kill9();
    world.service.restart().await;
    let conversation = world.user.wait_until_ready(&task).await;
    let is_late = |call: &String| call.starts_with("LATE");
    wait_until(
        "the message of the first request",
        RECONCILE_TIMEOUT,
        || world.stub.calls().iter().any(is_late),
    )
    .await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    let log = world.user.events_at_agent_server(&conversation).await;
    assert_eq!(count_user_messages(&log), 1);
}

#[tokio::test]
async fn sandbox_killed_between_spawn_and_record_is_adopted_and_watched() {
    let mut world = World::with_faults("").await;
    let conversation = world.user.converse("hello").await;
    let sandbox = &conversation.sandbox_id;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    world.service.kill9();
    // The state that a kill between the spawn and its record leaves behind.
    let file = world.service.sandbox_dir(sandbox).join("process.json");
    let text = std::fs::read_to_string(&file).expect("the sandbox has no state file");
    let mut state: serde_json::Value = serde_json::from_str(&text).expect("the state is not JSON");
    assert_eq!(state["phase"], "running");
    state["phase"] = "starting".into();
    state["process"] = serde_json::Value::Null;
    std::fs::write(&file, state.to_string()).expect("cannot write the state");
    world.service.restart().await;

    // The first pass over all sandboxes adopts it and logs that.
    wait_until("the adoption of the sandbox", RECONCILE_TIMEOUT, || {
        world.service.log().contains("adopted")
    })
    .await;
    let servers = world.service.agent_servers();
    assert_eq!(servers.len(), 1, "{servers:#?}");
    servers[0].signal(Signal::KILL);
    world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    world.user.resume(sandbox).await;
    world.user.send_message(&conversation.id, "go on").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
}
