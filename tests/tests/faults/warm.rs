//! Warm sandboxes, with an agent server that can be dormant.

use std::time::Duration;

use acceptance::Sandboxing;
use acceptance::wait::wait_until;

use crate::support::World;

/// Booting the stub takes milliseconds; the rest is for a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until this many warm sandboxes have become ready since the first start of the service.
async fn wait_for_ready_count(world: &World, count: usize) {
    wait_until("the warm sandboxes", EVENT_TIMEOUT, || {
        let log = world.service.log();
        log.matches("a warm sandbox is ready").count() >= count
    })
    .await;
}

/// Waits until this many agent servers run.
async fn wait_for_agent_servers(world: &World, count: usize) {
    wait_until(&format!("{count} agent servers"), EVENT_TIMEOUT, || {
        world.service.agent_servers().len() == count
    })
    .await;
}

pub(crate) async fn start_claims_the_warm_sandbox_after_a_crash(sandboxing: Sandboxing) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__WARM", "1")
    })
    .await;
    wait_for_ready_count(&world, 1).await;
    assert!(
        world.user.sandboxes().await.is_empty(),
        "a warm sandbox has no owner"
    );
    world.service.kill9();
    world.service.restart().await;
    let task = world.user.start_with("hello").await;
    let conversation = world.user.wait_until_ready(&task).await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    let timings = world.user.task(&task.id).await.timings;
    assert!(timings["WARM_SANDBOX"].is_u64(), "{timings:?}");
    let sandbox = world.user.sandboxes().await.remove(0).id;
    // The pool boots another one. A resume wakes the first again, because it boots dormant each time.
    wait_for_ready_count(&world, 2).await;
    world.user.pause(&sandbox).await;
    world.user.resume(&sandbox).await;
    world.user.send_message(&conversation.id, "and again").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    wait_for_agent_servers(&world, 2).await;
    // Without a pool the warm sandbox is removed.
    world.service.stop().await;
    world.service.set_variable("WORKSPACE_SANDBOX__WARM", "0");
    world.service.restart().await;
    wait_for_agent_servers(&world, 1).await;
    world.service.assert_no_orphans(&[&world.user]).await;
}
