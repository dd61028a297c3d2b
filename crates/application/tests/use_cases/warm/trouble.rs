//! Warm sandboxes, and those that boot dormant, where something is not as it should be.

use std::time::Duration;

use application::Policy;
use domain::agent::{AgentRuntime, InitRequest};
use domain::id::SandboxId;
use domain::sandbox::{SandboxBackend, SandboxLaunch, SandboxStatus, WarmState};
use domain::start_task::StartStatus;
use secrecy::SecretString;
use store_memory::{FakeSpecs, FakeBehavior};

use super::support::{claim, replaced, running};
use super::{
    a_while, forgetful, ids, keep, one, one_at_most, one_turn, ready, rows, shared, was_warm, world,
};
use crate::world::{World, alice, input, mine, until};

fn elsewhere(policy: &mut Policy) {
    keep(policy, 1);
    policy.cors_origins = vec!["https://other.test".to_owned()];
}

fn shared_elsewhere(policy: &mut Policy) {
    shared(policy);
    policy.cors_origins = vec!["https://other.test".to_owned()];
}

fn shared_without(policy: &mut Policy) {
    shared(policy);
    keep(policy, 0);
}

fn eight(policy: &mut Policy) {
    keep(policy, 8);
}

fn two_hundred(policy: &mut Policy) {
    keep(policy, 200);
    policy.caps.change(|caps| caps.overall = 1_000);
}

fn one_turn_and_room(policy: &mut Policy) {
    one_turn(policy);
    policy.caps.change(|caps| caps.per_user = 10);
}

async fn is(world: &World, id: &SandboxId, status: SandboxStatus) -> bool {
    world
        .sandbox(id)
        .await
        .is_some_and(|row| row.status == status)
}

async fn paused(world: &World, id: &SandboxId) {
    let paused = world.app.sandboxes.pause(&mine(), id).await;
    paused.expect("it can be paused");
}

async fn resumed(world: &World, id: &SandboxId) {
    let resumed = world.app.sandboxes.resume(&mine(), id).await;
    resumed.expect("within the caps");
}

/// A running sandbox that boots dormant whenever it starts, with the pool full again.
async fn born_dormant(world: &World) -> SandboxId {
    world.backend.keep_environment(true);
    ready(world, 1).await;
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    ready(world, 1).await;
    task.sandbox_id
}

/// Rows of a store that has gone back in time say of a user's sandbox that it is ready for anybody.
#[tokio::test(start_paused = true)]
async fn one_that_is_awake_is_given_to_nobody() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    let somebodys = InitRequest {
        session_key: SecretString::from("theirs"),
        secret_key: SecretString::from("theirs"),
        webhook_url: "http://127.0.0.1/".parse().expect("a URL"),
        cors_origins: Vec::new(),
    };
    let woken = world.agents.wake(&warm.id, &url, &somebodys).await;
    woken.expect("it wakes");
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert!(!was_warm(&task));
    assert_ne!(task.sandbox_id, warm.id);
    replaced(&world, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_in_time_is_kept_for_another_start() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    world
        .agents
        .set_behavior_at(&url, FakeBehavior::Slow(Duration::from_secs(3)));
    let started = world.app.sandboxes.start(&alice(), None).await;
    let started = started.expect("within the caps");
    assert_ne!(started.id, warm.id);
    world.agents.set_behavior_at(&url, FakeBehavior::Responsive);
    running(&world, &started.id).await;
    assert_eq!(ready(&world, 1).await.remove(0).id, warm.id);
    let started = world.app.sandboxes.start(&alice(), None).await;
    assert_eq!(started.expect("within the caps").id, warm.id);
}

#[tokio::test(start_paused = true)]
async fn what_was_booted_for_other_origins_is_replaced() {
    let old = world(one).await;
    let warm = ready(&old, 1).await.remove(0);
    let next = old.replica(elsewhere);
    old.dies().await;
    replaced(&next, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn starts_that_are_refused_change_nothing() {
    let world = world(one_at_most).await;
    ready(&world, 1).await;
    world.started(input(|_| {})).await;
    let warm = ready(&world, 1).await.remove(0);
    let (before, launched) = (world.app.warm_counts(), world.backend.launched());
    for _ in 0..100 {
        let refused = world.app.sandboxes.start(&alice(), None).await;
        refused.expect_err("over the cap");
        assert_eq!(ready(&world, 1).await.remove(0).id, warm.id);
    }
    // Before the rows are counted again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let counts = world.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (before.hits, before.misses));
    assert_eq!((counts.target, counts.ended), (1, before.ended));
    assert_eq!(world.backend.launched(), launched);
    assert_eq!(ready(&world, 1).await.remove(0).id, warm.id);
}

#[tokio::test(start_paused = true)]
async fn services_that_share_a_host_leave_each_other_theirs() {
    let one = world(shared).await;
    let before = ids(&ready(&one, 3).await);
    let two = one.replica(shared_elsewhere);
    let three = one.replica(shared_without);
    a_while().await;
    for world in [&one, &two, &three] {
        assert_eq!(ids(&ready(world, 3).await), before);
    }
    assert_eq!(one.backend.launched(), 3);
    let task = two.started(input(|_| {})).await;
    assert!(!was_warm(&task), "it is not as this one would boot it");
    let task = one
        .start(input(|it| it.title = Some("another".to_owned())))
        .await;
    assert!(was_warm(&one.ended(&task).await));
}

#[tokio::test(start_paused = true)]
async fn what_is_of_no_use_goes_also_while_nothing_can_be_booted() {
    let world = world(forgetful).await;
    let warm = ready(&world, 1).await.remove(0);
    world.backend.lose_image();
    a_while().await;
    assert_eq!(
        ready(&world, 1).await.remove(0).id,
        warm.id,
        "it may be of use again"
    );
    claim(&world, &warm).await;
    until(|| async {
        (rows(&world).await.is_empty() && world.backend.existing() == 0).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn boots_that_fail_together_failed_once() {
    let world = World::empty(eight);
    world.agents.share_dormant_servers(world.backend.dormant_servers());
    let began = tokio::time::Instant::now();
    world.backend.fail_starts(8);
    ready(&world, 8).await;
    assert_eq!(world.app.warm_counts().failed_boots, 8);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_nobody_owns_goes_also_while_the_pool_is_as_large_as_it_can_be() {
    let world = world(two_hundred).await;
    let all = ready(&world, 200).await;
    let lost = SandboxLaunch {
        id: SandboxId::parse("lost").expect("an id"),
        owner: alice(),
        spec: all[0].spec_id.clone(),
        session_key: SecretString::from("a"),
        secret_key: SecretString::from("b"),
        webhook_url: "http://127.0.0.1/".parse().expect("a URL"),
        cors_origins: Vec::new(),
        dormant: false,
    };
    world.backend.start(&lost).await.expect("it starts");
    until(|| async { (world.backend.existing() == 200).then_some(()) }).await;
    let state = world.backend.inspect(&lost.id).await.expect("readable");
    assert_eq!(state, None);
}

/// The engine may take minutes for that.
#[tokio::test(start_paused = true)]
async fn a_start_does_not_wait_until_what_gave_way_is_removed() {
    let world = world(one_turn).await;
    world
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let warm = ready(&world, 1).await.remove(0);
    world.backend.hang_removals(true);
    world.agents.set_behavior(FakeBehavior::Unreachable);
    world.backend.exit(&warm.id);
    until(|| async {
        let rows = rows(&world).await;
        let boots = rows.iter().any(|row| row.state == WarmState::Booting);
        boots.then_some(())
    })
    .await;
    let started = world.app.sandboxes.start(&alice(), Some("other")).await;
    let id = started.expect("within the caps").id;
    until(|| async { (world.app.warm_counts().gave_way > 0).then_some(()) }).await;
    world.agents.set_behavior(FakeBehavior::Responsive);
    running(&world, &id).await;
    world.backend.hang_removals(false);
    ready(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_slow_to_wake_keeps_nobody_from_booting() {
    let world = world(one_turn_and_room).await;
    world
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let slow = born_dormant(&world).await;
    paused(&world, &slow).await;
    let asked = FakeBehavior::Slow(Duration::from_secs(25));
    world.agents.set_dormancy_behavior(Some(asked));
    let before = world.agents.calls().is_dormant;
    resumed(&world, &slow).await;
    until(|| async { (world.agents.calls().is_dormant > before).then_some(()) }).await;
    let started = world.app.sandboxes.start(&alice(), Some("other")).await;
    running(&world, &started.expect("within the caps").id).await;
    assert!(is(&world, &slow, SandboxStatus::Starting).await);
    running(&world, &slow).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_never_wakes_fails_in_time() {
    let world = world(one).await;
    let slow = born_dormant(&world).await;
    paused(&world, &slow).await;
    let asked = FakeBehavior::Slow(Duration::from_secs(600));
    world.agents.set_dormancy_behavior(Some(asked));
    resumed(&world, &slow).await;
    let began = tokio::time::Instant::now();
    until(|| async { is(&world, &slow, SandboxStatus::Error).await.then_some(()) }).await;
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

/// Sandboxes that were never dormant start as they did before there were such.
#[tokio::test(start_paused = true)]
async fn where_none_are_kept_no_question_fails_a_start() {
    for mood in [
        FakeBehavior::Rejecting(502),
        FakeBehavior::Unreachable,
        FakeBehavior::Slow(Duration::from_secs(600)),
    ] {
        let world = World::with(|_| {}).await;
        world.agents.set_dormancy_behavior(Some(mood));
        let started = world.app.sandboxes.start(&alice(), None).await;
        let id = started.expect("within the caps").id;
        running(&world, &id).await;
        assert_eq!(
            world.agents.calls().is_dormant,
            0,
            "it was told all when it was made"
        );
        paused(&world, &id).await;
        resumed(&world, &id).await;
        running(&world, &id).await;
    }
}

/// A proxy of an image of somebody's own may say anything of a route that it does not know.
#[tokio::test(start_paused = true)]
async fn one_that_says_5xx_is_not_dormant() {
    let world = World::with(one).await;
    world
        .agents
        .set_dormancy_behavior(Some(FakeBehavior::Rejecting(500)));
    let started = world.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("within the caps").id;
    running(&world, &id).await;
    paused(&world, &id).await;
    resumed(&world, &id).await;
    running(&world, &id).await;
}
