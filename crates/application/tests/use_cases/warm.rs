//! Warm sandboxes: kept, claimed, given up, and found again.

mod support;
mod trouble;

use std::collections::BTreeSet;
use std::time::Duration;

use application::Policy;
use domain::id::SandboxId;
use domain::sandbox::{SandboxStatus, WarmRepository, WarmSandbox, WarmState};
use domain::start_task::{StartStatus, StartTask};
use secrecy::ExposeSecret;
use store_memory::{FakeSpecs, FakeBehavior};

use self::support::{claim, page, replaced, running, sandbox_of};
use crate::world::{World, alice, input, mine, until};

fn one(policy: &mut Policy) {
    keep(policy, 1);
}

fn three(policy: &mut Policy) {
    keep(policy, 3);
}

fn three_for_many(policy: &mut Policy) {
    keep(policy, 3);
    policy.caps.change(|caps| caps.per_user = 50);
    policy.max_parallel_starts = 50;
}

fn short_lived(policy: &mut Policy) {
    keep(policy, 1);
    policy.warm.max_age = Duration::from_millis(1);
}

fn forgetful(policy: &mut Policy) {
    keep(policy, 1);
    policy.warm.claim_grace = Duration::ZERO;
}

fn one_at_most(policy: &mut Policy) {
    keep(policy, 1);
    policy.caps.change(|caps| caps.per_user = 1);
}

fn room_for_four(policy: &mut Policy) {
    keep(policy, 3);
    policy.caps.change(|caps| caps.overall = 4);
}

fn one_turn(policy: &mut Policy) {
    keep(policy, 1);
    policy.parallel_boots = 1;
}

fn shared(policy: &mut Policy) {
    keep(policy, 3);
    policy.is_host_shared = true;
    // By the real clock: on a busy machine a short one ends while its holder lives.
    policy.lease = Duration::from_secs(3600);
}

fn keep(policy: &mut Policy, keep: u32) {
    policy.warm.keep = keep;
}

async fn rows(world: &World) -> Vec<WarmSandbox> {
    let host = domain::id::HostId::parse("host").expect("an id");
    world.store.list_on_host(&host).await.expect("readable")
}

/// The READY ones, once there are so many and nothing else.
async fn ready(world: &World, count: usize) -> Vec<WarmSandbox> {
    until(|| async {
        let rows = rows(world).await;
        let all_ready = rows.iter().all(|row| row.state == WarmState::Ready);
        (all_ready && rows.len() == count).then_some(rows)
    })
    .await
}

/// A service whose agent servers can be dormant.
async fn world(change: fn(&mut Policy)) -> World {
    let world = World::with(change).await;
    world.agents.share_dormant_servers(world.backend.dormant_servers());
    world
}

fn ids(rows: &[WarmSandbox]) -> BTreeSet<SandboxId> {
    rows.iter().map(|row| row.id.clone()).collect()
}

fn was_warm(task: &StartTask) -> bool {
    assert_ne!(
        task.timings.contains_key("WARM_SANDBOX"),
        task.timings.contains_key("NO_WARM_SANDBOX"),
        "{:?}",
        task.timings
    );
    task.timings.contains_key("WARM_SANDBOX")
}

async fn a_while() {
    tokio::time::sleep(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_gets_the_warm_one_with_its_keys_and_another_takes_its_place() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    assert_eq!(world.agents.calls().prewarm, 1, "before anybody comes");
    assert!(
        world
            .app
            .sandboxes
            .search(&mine(), &page())
            .await
            .expect("readable")
            .items
            .is_empty()
    );
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert!(was_warm(&task));
    assert_eq!(task.sandbox_id, warm.id);
    let row = world.sandbox(&warm.id).await.expect("a row");
    assert_eq!(row.status, SandboxStatus::Running);
    assert_eq!(row.key_hash, warm.key_hash, "its reports are recognised");
    let init_requests = world.agents.init_requests();
    let (_, told) = init_requests.first().expect("it was woken");
    let key = world.app.sandboxes.session_key(&row).expect("shown");
    assert_eq!(told.session_key.expose_secret(), key.expose_secret());
    assert_eq!(
        told.webhook_url.as_str(),
        "http://127.0.0.1:3000/api/v1/webhooks"
    );
    let next = ready(&world, 1).await.remove(0);
    assert_ne!(next.id, warm.id);
    let counts = world.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_asked_for_by_itself_is_warm_too() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    let started = world.app.sandboxes.start(&alice(), None).await;
    assert_eq!(started.expect("within the caps").id, warm.id);
    running(&world, &warm.id).await;
    assert_eq!(world.agents.init_requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_twenty_at_once_three_are_warm_and_none_is_shared() {
    let world = world(three_for_many).await;
    let warm = ids(&ready(&world, 3).await);
    let starts = (0..20).map(|n| {
        let mut request = input(|_| {});
        request.request.title = Some(format!("start {n}"));
        world.start(request)
    });
    let tasks = futures::future::join_all(starts).await;
    let mut sandboxes = BTreeSet::new();
    let mut hits = BTreeSet::new();
    for task in &tasks {
        let ended = world.ended(task).await;
        assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
        if was_warm(&ended) {
            hits.insert(ended.sandbox_id.clone());
        }
        sandboxes.insert(ended.sandbox_id);
    }
    assert_eq!(sandboxes.len(), 20);
    assert_eq!(hits, warm);
    assert_eq!(world.agents.init_requests().len(), 3);
    let counts = world.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (3, 17));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_gives_its_warm_one_back() {
    let world = world(one_at_most).await;
    ready(&world, 1).await;
    world.started(input(|_| {})).await;
    let warm = ready(&world, 1).await.remove(0);
    let refused = world.app.starts.start(&alice(), input(|_| {})).await;
    refused.expect_err("over the cap");
    world
        .app
        .sandboxes
        .start(&alice(), None)
        .await
        .expect_err("over the cap");
    let again = ready(&world, 1).await.remove(0);
    assert_eq!(again.id, warm.id);
    assert_eq!(world.backend.existing(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_warm_is_adopted_after_a_crash() {
    let world = world(three).await;
    let before = ids(&ready(&world, 3).await);
    let world = world.killed().await;
    a_while().await;
    assert_eq!(ids(&ready(&world, 3).await), before);
    assert_eq!(world.backend.launched(), 3);
    let task = world.started(input(|_| {})).await;
    assert!(was_warm(&task));
}

#[tokio::test(start_paused = true)]
async fn a_boot_that_a_crash_cut_off_is_gone_on_with() {
    let world = world(one).await;
    world.agents.set_behavior(FakeBehavior::Unreachable);
    let booting = until(|| async { rows(&world).await.pop() }).await;
    let world = world.killed().await;
    world.agents.set_behavior(FakeBehavior::Responsive);
    let warm = ready(&world, 1).await.remove(0);
    assert_eq!(warm.id, booting.id);
    assert_eq!(world.backend.existing(), 1);
}

/// The process died between the claim and the row, or right after the row.
#[tokio::test(start_paused = true)]
async fn a_claim_that_came_to_nothing_is_cleared_away_and_one_that_became_a_sandbox_is_not() {
    let world = world(forgetful).await;
    let lost = ready(&world, 1).await.remove(0);
    claim(&world, &lost).await;
    let kept = until(|| async {
        let rows = rows(&world).await;
        rows.into_iter()
            .find(|row| row.id != lost.id && row.state == WarmState::Ready)
    })
    .await;
    let mut row = sandbox_of(&kept);
    row.owner = alice();
    let caps = Policy::new(
        kept.host.clone(),
        "http://127.0.0.1/".parse().expect("a URL"),
        application::AuthMode::ApiKey,
    )
    .caps
    .get();
    claim(&world, &kept).await;
    domain::sandbox::SandboxRepository::insert(world.store.as_ref(), &row, &caps)
        .await
        .expect("stored");
    let world = world.killed().await;
    running(&world, &kept.id).await;
    let rest = until(|| async {
        let rows = rows(&world).await;
        let settled = rows
            .iter()
            .all(|row| row.id != lost.id && row.id != kept.id);
        (settled && world.backend.existing() == 2 && rows.len() == 1).then_some(rows)
    })
    .await;
    assert_eq!(rest.len(), 1);
    a_while().await;
    running(&world, &kept.id).await;
}

#[tokio::test(start_paused = true)]
async fn none_are_kept_any_more_where_that_is_configured() {
    let world = world(three).await;
    ready(&world, 3).await;
    let off = world.replica(|_| {});
    world.dies().await;
    until(|| async { (rows(&off).await.is_empty() && off.backend.existing() == 0).then_some(()) })
        .await;
    let task = off.started(input(|_| {})).await;
    assert!(!task.timings.contains_key("WARM_SANDBOX"));
    assert!(!task.timings.contains_key("NO_WARM_SANDBOX"));
}

#[tokio::test(start_paused = true)]
async fn what_a_cold_start_would_not_be_made_of_any_more_is_replaced() {
    let world = world(one).await;
    let old = ready(&world, 1).await.remove(0);
    world.backend.set_recipe("another image");
    replaced(&world, &old).await;
}

#[tokio::test(start_paused = true)]
async fn warm_ones_of_another_template_are_not_taken() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    world
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let started = world.app.sandboxes.start(&alice(), Some("other")).await;
    let started = started.expect("within the caps");
    assert_ne!(started.id, warm.id);
    running(&world, &started.id).await;
    world.specs.set(vec![FakeSpecs::spec("other")]);
    replaced(&world, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_ended_is_replaced_at_once() {
    let world = world(one).await;
    let old = ready(&world, 1).await.remove(0);
    world.backend.exit(&old.id);
    replaced(&world, &old).await;
    let old = ready(&world, 1).await.remove(0);
    world.backend.exit_unseen(&old.id);
    replaced(&world, &old).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_any_more_is_replaced() {
    let world = world(one).await;
    let old = ready(&world, 1).await.remove(0);
    let url = old.endpoints.clone().expect("it has an address").agent_url;
    world.agents.set_behavior_at(&url, FakeBehavior::Unreachable);
    replaced(&world, &old).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_one_is_replaced() {
    let world = world(short_lived).await;
    let old = until(|| async { rows(&world).await.pop() }).await;
    until(|| async { (!ids(&rows(&world).await).contains(&old.id)).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_dormant_is_tried_once() {
    // Its agent servers are awake whatever they are told.
    let world = World::with(three).await;
    until(|| async {
        let counts = world.app.warm_counts();
        (counts.refused_recipes == 1 && world.backend.existing() == 0).then_some(())
    })
    .await;
    a_while().await;
    let tried = world.backend.starts();
    assert!(tried <= 3, "{tried}");
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert!(!was_warm(&task));
    world.agents.share_dormant_servers(world.backend.dormant_servers());
    world.backend.set_recipe("an image that can");
    ready(&world, 3).await;
}

#[tokio::test(start_paused = true)]
async fn boots_that_fail_are_tried_less_and_less_often() {
    let world = World::empty(one);
    world.agents.share_dormant_servers(world.backend.dormant_servers());
    world.backend.fail_starts(3);
    ready(&world, 1).await;
    let counts = world.app.warm_counts();
    assert_eq!(counts.failed_boots, 3);
    assert_eq!(world.backend.existing(), 1);
}

#[tokio::test(start_paused = true)]
async fn warm_and_running_ones_stay_within_the_cap_of_the_installation() {
    let world = world(room_for_four).await;
    ready(&world, 3).await;
    for left in [3, 2, 1, 0] {
        let started = world.app.sandboxes.start(&alice(), None).await;
        running(&world, &started.expect("within the cap").id).await;
        ready(&world, left).await;
        assert!(world.backend.existing() <= 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_waits_for_its_turn_to_boot_comes_first() {
    let world = world(one_turn).await;
    world
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let warm = ready(&world, 1).await.remove(0);
    // What is booted from now on does not answer.
    world.agents.set_behavior(FakeBehavior::Unreachable);
    world.backend.exit(&warm.id);
    until(|| async {
        let rows = rows(&world).await;
        rows.iter()
            .any(|row| row.state == WarmState::Booting)
            .then_some(())
    })
    .await;
    let started = world.app.sandboxes.start(&alice(), Some("other")).await;
    let id = started.expect("within the caps").id;
    until(|| async { (world.app.warm_counts().gave_way > 0).then_some(()) }).await;
    world.agents.set_behavior(FakeBehavior::Responsive);
    running(&world, &id).await;
    ready(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_woken_is_replaced_by_a_cold_one() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    world.agents.refuse_to_wake(&url);
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert_eq!(task.sandbox_id, warm.id);
    assert!(world.agents.init_requests().is_empty());
    let row = world.sandbox(&warm.id).await.expect("a row");
    assert_ne!(row.agent_url.as_deref(), Some(&url));
}

/// A container has its environment for life.
#[tokio::test(start_paused = true)]
async fn one_that_boots_dormant_again_after_a_pause_is_woken_again() {
    let world = world(one).await;
    world.backend.keep_environment(true);
    ready(&world, 1).await;
    let task = world.started(input(|_| {})).await;
    let id = &task.sandbox_id;
    world
        .app
        .sandboxes
        .pause(&mine(), id)
        .await
        .expect("paused");
    world
        .app
        .sandboxes
        .resume(&mine(), id)
        .await
        .expect("resumed");
    running(&world, id).await;
    let woken = world.agents.init_requests();
    let keys: BTreeSet<_> = woken
        .iter()
        .map(|(_, told)| told.session_key.expose_secret())
        .collect();
    assert_eq!((woken.len(), keys.len()), (2, 1));
}

/// A crash between the claim and the wake-up.
#[tokio::test(start_paused = true)]
async fn a_claimed_one_that_was_not_woken_is_woken_by_the_next_life() {
    let world = world(one).await;
    let warm = ready(&world, 1).await.remove(0);
    world
        .agents
        .set_behavior(FakeBehavior::Slow(Duration::from_millis(300)));
    let task = world.start(input(|_| {})).await;
    let world = world.killed().await;
    world.agents.set_behavior(FakeBehavior::Responsive);
    let ended = world.ended(&task).await;
    assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    assert_eq!(ended.sandbox_id, warm.id);
    assert_eq!(world.agents.init_requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn services_that_share_a_host_share_its_pool() {
    let one = world(shared).await;
    let two = one.replica(shared);
    ready(&one, 3).await;
    a_while().await;
    assert_eq!(ready(&two, 3).await.len(), 3);
    assert_eq!(one.backend.existing(), 3);
    for (n, world) in [&one, &two, &one].into_iter().enumerate() {
        let mut request = input(|_| {});
        request.request.title = Some(format!("start {n}"));
        let task = world.started(request).await;
        assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    }
    ready(&one, 3).await;
}
