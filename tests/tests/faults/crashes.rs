//! `kill -9` of the service at many points of a start.

use std::time::{Duration, Instant};

use acceptance::Sandboxing;
use acceptance::wait::wait_until;
use rustix::process::Signal;

use crate::support::{NOTICE_TIMEOUT, RECONCILE_TIMEOUT, World, heard, said_by_user};

/// After the answer to POST, in milliseconds; a start with the stub takes some tens of them.
const POINTS: [u64; 12] = [0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 60, 90];
/// In containers it takes some hundreds. Fewer, because a start that was interrupted ten times is given up.
const POINTS_IN_CONTAINERS: [u64; 8] = [0, 20, 60, 120, 200, 300, 450, 700];

fn points(sandboxing: &Sandboxing) -> &'static [u64] {
    match sandboxing {
        Sandboxing::Process => &POINTS,
        Sandboxing::Docker(_) => &POINTS_IN_CONTAINERS,
    }
}

pub(crate) async fn every_accepted_start_is_finished_exactly_once_wherever_the_service_is_killed(
    sandboxing: Sandboxing,
) {
    let mut world = World::on(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100")
    })
    .await;
    let mut tasks = Vec::new();
    let points = points(&sandboxing);
    for &point in points {
        tasks.push(world.user.start_with("hello").await);
        let until = Instant::now() + Duration::from_millis(point);
        // No event marks these points; that they are spread is what matters.
        tokio::time::sleep_until(until.into()).await;
        world.service.kill9();
        world.service.restart().await;
    }
    for task in &tasks {
        let conversation = world.user.ready(task).await;
        world.user.executed(&conversation.id, "finished").await;
        heard(&world.user, &conversation.id, 1, 1).await;
    }
    assert_eq!(world.user.conversations().await.len(), points.len());
    assert_eq!(world.service.agent_servers().len(), points.len());
    world.service.assert_no_orphans(&[&world.user]).await;
}

pub(crate) async fn a_deletion_that_was_accepted_is_done_wherever_the_service_is_killed(
    sandboxing: Sandboxing,
) {
    let mut world = World::on(&sandboxing, "", |builder| builder).await;
    for &point in points(&sandboxing).iter().step_by(2) {
        let conversation = world.user.converse("hello").await;
        world.user.delete_conversation(&conversation.id).await;
        let until = Instant::now() + Duration::from_millis(point);
        tokio::time::sleep_until(until.into()).await;
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
async fn a_request_that_is_still_at_work_when_the_service_is_back_is_not_sent_again() {
    let mut world = World::with("create-slow").await;
    let task = world.user.start_with("hello").await;
    wait_until("the request", RECONCILE_TIMEOUT, || {
        !world.stub.creates().is_empty()
    })
    .await;
    world.service.kill9();
    world.service.restart().await;
    let conversation = world.user.ready(&task).await;
    let is_late = |call: &String| call.starts_with("LATE");
    wait_until(
        "the message of the first request",
        RECONCILE_TIMEOUT,
        || world.stub.calls().iter().any(is_late),
    )
    .await;
    world.user.executed(&conversation.id, "finished").await;
    let log = world.user.events_at_agent_server(&conversation).await;
    assert_eq!(said_by_user(&log), 1);
}

#[tokio::test]
async fn a_sandbox_whose_start_was_cut_off_after_the_spawn_is_watched_like_any_other() {
    let mut world = World::with("").await;
    let conversation = world.user.converse("hello").await;
    let sandbox = &conversation.sandbox_id;
    world.user.executed(&conversation.id, "finished").await;
    world.service.kill9();
    // What a kill between making the process and writing that it runs leaves behind.
    let file = world.service.sandbox_dir(sandbox).join("process.json");
    let text = std::fs::read_to_string(&file).expect("a sandbox has a state");
    let mut state: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(state["phase"], "running");
    state["phase"] = "starting".into();
    state["process"] = serde_json::Value::Null;
    std::fs::write(&file, state.to_string()).expect("it can be written");
    world.service.restart().await;

    // The first pass over all sandboxes adopts it, which its log tells.
    wait_until("its adoption", RECONCILE_TIMEOUT, || {
        world.service.log().contains("adopted")
    })
    .await;
    let servers = world.service.agent_servers();
    assert_eq!(servers.len(), 1, "{servers:#?}");
    servers[0].signal(Signal::KILL);
    world
        .user
        .sandbox_becomes(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    world.user.resume(sandbox).await;
    world.user.say(&conversation.id, "go on").await;
    world.user.executed(&conversation.id, "finished").await;
}
