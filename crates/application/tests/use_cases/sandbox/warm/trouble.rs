//! Failures of warm and dormant sandboxes.

use std::time::Duration;

use application::Policy;
use domain::agent::{AgentLifecycle, InitRequest};
use domain::id::SandboxId;
use domain::sandbox::{PrepareProgress, SandboxLaunch, SandboxLifecycle, SandboxStatus, WarmState};
use domain::start_task::StartStatus;
use secrecy::SecretString;
use store_memory::{FakeBehavior, FakeSpecs};

use super::support::{claim, wait_until_replaced, wait_until_running};
use super::{
    fixture, forgetful, ids, keep, one, one_at_most, one_turn, ready, rows, shared,
    wait_for_passes, was_warm,
};
use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

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

async fn is(fixture: &Fixture, id: &SandboxId, status: SandboxStatus) -> bool {
    fixture
        .sandbox(id)
        .await
        .is_some_and(|row| row.status == status)
}

async fn paused(fixture: &Fixture, id: &SandboxId) {
    let paused = fixture.app.sandboxes.pause(&alice_scope(), id).await;
    paused.expect("it can be paused");
}

async fn resumed(fixture: &Fixture, id: &SandboxId) {
    let resumed = fixture.app.sandboxes.resume(&alice_scope(), id).await;
    resumed.expect("within the caps");
}

/// A running sandbox that boots dormant at each start, with a full pool.
async fn boot_dormant_sandbox(fixture: &Fixture) -> SandboxId {
    fixture.backend.set_keeps_environment(true);
    ready(fixture, 1).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    ready(fixture, 1).await;
    task.sandbox_id
}

/// After a restore of the store, rows may show a user's sandbox as READY.
#[tokio::test(start_paused = true)]
async fn awake_sandboxes_are_never_claimed() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    let somebodys = InitRequest {
        session_key: SecretString::from("theirs"),
        secret_key: SecretString::from("theirs"),
        webhook_url: "http://127.0.0.1/".parse().expect("a URL"),
        cors_origins: Vec::new(),
    };
    let woken = fixture.agents.wake(&warm.id, &url, &somebodys).await;
    woken.expect("it wakes");
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert!(!was_warm(&task));
    assert_ne!(task.sandbox_id, warm.id);
    wait_until_replaced(&fixture, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_warm_sandbox_stays_available_for_other_starts() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    fixture
        .agents
        .set_behavior_at(&url, FakeBehavior::Slow(Duration::from_secs(3)));
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let started = started.expect("within the caps");
    assert_ne!(started.id, warm.id);
    fixture
        .agents
        .set_behavior_at(&url, FakeBehavior::Responsive);
    wait_until_running(&fixture, &started.id).await;
    assert_eq!(ready(&fixture, 1).await.remove(0).id, warm.id);
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    assert_eq!(started.expect("within the caps").id, warm.id);
}

#[tokio::test(start_paused = true)]
async fn sandboxes_with_other_origins_are_replaced() {
    let old = fixture(one).await;
    let warm = ready(&old, 1).await.remove(0);
    let next = old.replica(elsewhere);
    old.kill().await;
    wait_until_replaced(&next, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn starts_that_are_refused_change_nothing() {
    let fixture = fixture(one_at_most).await;
    ready(&fixture, 1).await;
    fixture.start_and_wait(start_input(|_| {})).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let (before, launched) = (
        fixture.app.warm_counts(),
        fixture.backend.count_started_sandboxes(),
    );
    for _ in 0..100 {
        let refused = fixture.app.sandboxes.start(&alice(), None).await;
        refused.expect_err("over the cap");
        assert_eq!(ready(&fixture, 1).await.remove(0).id, warm.id);
    }
    // Before the rows are counted again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let counts = fixture.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (before.hits, before.misses));
    assert_eq!((counts.target, counts.ended), (1, before.ended));
    assert_eq!(fixture.backend.count_started_sandboxes(), launched);
    assert_eq!(ready(&fixture, 1).await.remove(0).id, warm.id);
}

#[tokio::test(start_paused = true)]
async fn processes_of_a_host_keep_each_others_warm_sandboxes() {
    let one = fixture(shared).await;
    let before = ids(&ready(&one, 3).await);
    let two = one.replica(shared_elsewhere);
    let three = one.replica(shared_without);
    wait_for_passes().await;
    for fixture in [&one, &two, &three] {
        assert_eq!(ids(&ready(fixture, 3).await), before);
    }
    assert_eq!(one.backend.count_started_sandboxes(), 3);
    let task = two.start_and_wait(start_input(|_| {})).await;
    assert!(!was_warm(&task), "it is not as this one would boot it");
    let task = one
        .start(start_input(|it| it.title = Some("another".to_owned())))
        .await;
    assert!(was_warm(&one.wait_until_ended(&task).await));
}

#[tokio::test(start_paused = true)]
async fn unusable_sandboxes_are_removed_even_if_no_boot_is_possible() {
    let fixture = fixture(forgetful).await;
    let warm = ready(&fixture, 1).await.remove(0);
    fixture.backend.lose_image();
    wait_for_passes().await;
    assert_eq!(
        ready(&fixture, 1).await.remove(0).id,
        warm.id,
        "it may be of use again"
    );
    claim(&fixture, &warm).await;
    wait_for(|| async {
        (rows(&fixture).await.is_empty() && fixture.backend.count_sandboxes() == 0).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn parallel_failed_boots_count_once() {
    let fixture = Fixture::without_settings(eight);
    fixture
        .agents
        .share_dormant_servers(fixture.backend.dormant_servers());
    let began = tokio::time::Instant::now();
    fixture.backend.fail_starts(8);
    ready(&fixture, 8).await;
    assert_eq!(fixture.app.warm_counts().failed_boots, 8);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_are_removed_even_if_the_pool_is_full() {
    let fixture = fixture(two_hundred).await;
    let all = ready(&fixture, 200).await;
    let lost = SandboxLaunch {
        id: SandboxId::parse("lost").expect("an id"),
        owner: alice(),
        spec: all[0].spec_id.clone(),
        session_key: SecretString::from("a"),
        secret_key: SecretString::from("b"),
        webhook_url: "http://127.0.0.1/".parse().expect("a URL"),
        cors_origins: Vec::new(),
        dormant: false,
        progress: PrepareProgress::silent(),
    };
    fixture.backend.start(&lost).await.expect("it starts");
    wait_for(|| async { (fixture.backend.count_sandboxes() == 200).then_some(()) }).await;
    let state = fixture.backend.inspect(&lost.id).await.expect("readable");
    assert_eq!(state, None);
}

/// The engine may take minutes for the removal.
#[tokio::test(start_paused = true)]
async fn a_start_does_not_wait_for_the_removal_of_an_aborted_boot() {
    let fixture = fixture(one_turn).await;
    fixture
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let warm = ready(&fixture, 1).await.remove(0);
    fixture.backend.set_hanging_removals(true);
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    fixture.backend.exit(&warm.id);
    wait_for(|| async {
        let rows = rows(&fixture).await;
        let boots = rows.iter().any(|row| row.state == WarmState::Booting);
        boots.then_some(())
    })
    .await;
    let started = fixture.app.sandboxes.start(&alice(), Some("other")).await;
    let id = started.expect("within the caps").id;
    wait_for(|| async { (fixture.app.warm_counts().gave_way > 0).then_some(()) }).await;
    fixture.agents.set_behavior(FakeBehavior::Responsive);
    wait_until_running(&fixture, &id).await;
    fixture.backend.set_hanging_removals(false);
    ready(&fixture, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_wake_does_not_block_other_boots() {
    let fixture = fixture(one_turn_and_room).await;
    fixture
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let slow = boot_dormant_sandbox(&fixture).await;
    paused(&fixture, &slow).await;
    let asked = FakeBehavior::Slow(Duration::from_secs(25));
    fixture.agents.set_dormancy_behavior(Some(asked));
    let before = fixture.agents.calls().is_dormant;
    resumed(&fixture, &slow).await;
    wait_for(|| async { (fixture.agents.calls().is_dormant > before).then_some(()) }).await;
    let started = fixture.app.sandboxes.start(&alice(), Some("other")).await;
    wait_until_running(&fixture, &started.expect("within the caps").id).await;
    assert!(is(&fixture, &slow, SandboxStatus::Starting).await);
    wait_until_running(&fixture, &slow).await;
}

#[tokio::test(start_paused = true)]
async fn an_unwakeable_sandbox_fails_in_time() {
    let fixture = fixture(one).await;
    let slow = boot_dormant_sandbox(&fixture).await;
    paused(&fixture, &slow).await;
    let asked = FakeBehavior::Slow(Duration::from_secs(600));
    fixture.agents.set_dormancy_behavior(Some(asked));
    resumed(&fixture, &slow).await;
    let began = tokio::time::Instant::now();
    wait_for(|| async {
        is(&fixture, &slow, SandboxStatus::Error)
            .await
            .then_some(())
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

/// Sandboxes that cannot be dormant start as without a pool.
#[tokio::test(start_paused = true)]
async fn without_a_pool_no_dormancy_check_fails_a_start() {
    for behavior in [
        FakeBehavior::Rejecting(502),
        FakeBehavior::Unreachable,
        FakeBehavior::Slow(Duration::from_secs(600)),
    ] {
        let fixture = Fixture::with_policy(|_| {}).await;
        fixture.agents.set_dormancy_behavior(Some(behavior));
        let started = fixture.app.sandboxes.start(&alice(), None).await;
        let id = started.expect("within the caps").id;
        wait_until_running(&fixture, &id).await;
        assert_eq!(
            fixture.agents.calls().is_dormant,
            0,
            "its environment had everything at its creation"
        );
        paused(&fixture, &id).await;
        resumed(&fixture, &id).await;
        wait_until_running(&fixture, &id).await;
    }
}

/// A proxy in a custom image may return any status for an unknown route.
#[tokio::test(start_paused = true)]
async fn a_5xx_response_does_not_mean_dormant() {
    let fixture = Fixture::with_policy(one).await;
    fixture
        .agents
        .set_dormancy_behavior(Some(FakeBehavior::Rejecting(500)));
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let id = started.expect("within the caps").id;
    wait_until_running(&fixture, &id).await;
    paused(&fixture, &id).await;
    resumed(&fixture, &id).await;
    wait_until_running(&fixture, &id).await;
}
