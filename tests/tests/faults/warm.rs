//! Warm sandboxes, with an agent server that can be dormant.

use std::time::Duration;

use acceptance::Sandboxing;
use acceptance::wait::wait_until;

use crate::support::World;

/// Booting takes milliseconds here; the rest is for a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// So many have become ready since the service was first started.
async fn readied(world: &World, count: usize) {
    wait_until("the warm sandboxes", EVENT_TIMEOUT, || {
        let log = world.service.log();
        log.matches("a warm sandbox is ready").count() >= count
    })
    .await;
}

/// How many agent servers run.
async fn run(world: &World, count: usize) {
    wait_until(
        "as many agent servers as there should be",
        EVENT_TIMEOUT,
        || world.service.agent_servers().len() == count,
    )
    .await;
}

pub(crate) async fn a_start_takes_the_warm_one_also_after_a_crash(sandboxing: Sandboxing) {
    let mut world = World::on(&sandboxing, "", |builder| {
        builder.env("WORKSPACE_SANDBOX__WARM", "1")
    })
    .await;
    readied(&world, 1).await;
    assert!(world.user.sandboxes().await.is_empty(), "it is nobody's");
    world.service.kill9();
    world.service.restart().await;
    let task = world.user.start_with("hello").await;
    let conversation = world.user.ready(&task).await;
    world.user.executed(&conversation.id, "finished").await;
    let timings = world.user.task(&task.id).await.timings;
    assert!(timings["WARM_SANDBOX"].is_u64(), "{timings:?}");
    let sandbox = world.user.sandboxes().await.remove(0).id;
    // Another one takes its place, and a pause and a resume wake the first again where it boots dormant each time.
    readied(&world, 2).await;
    world.user.pause(&sandbox).await;
    world.user.resume(&sandbox).await;
    world.user.say(&conversation.id, "and again").await;
    world.user.executed(&conversation.id, "finished").await;
    run(&world, 2).await;
    // Switched off, it goes.
    world.service.stop().await;
    world.service.set("WORKSPACE_SANDBOX__WARM", "0");
    world.service.restart().await;
    run(&world, 1).await;
    world.service.assert_no_orphans(&[&world.user]).await;
}
