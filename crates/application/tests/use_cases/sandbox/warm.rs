//! Warm sandboxes: kept, claimed, abandoned, and recovered.

mod support;
mod trouble;

use std::collections::BTreeSet;
use std::time::Duration;

use application::Policy;
use domain::id::SandboxId;
use domain::sandbox::{SandboxStatus, WarmRepository, WarmSandbox, WarmState};
use domain::start_task::{StartStatus, StartTask};
use secrecy::ExposeSecret;
use store_memory::{FakeBehavior, FakeSpecs};

use self::support::{claim, first_page, sandbox_of, wait_until_replaced, wait_until_running};
use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

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
    policy.max_parallel_boots = 1;
}

fn shared(policy: &mut Policy) {
    keep(policy, 3);
    policy.is_host_shared = true;
    // By the real clock: on a busy machine a short lease expires while its holder lives.
    policy.lease_ttl = Duration::from_secs(3600);
}

fn keep(policy: &mut Policy, keep: u32) {
    policy.warm.target_count = keep;
}

async fn rows(fixture: &Fixture) -> Vec<WarmSandbox> {
    let host = domain::id::HostId::parse("host").expect("an id");
    fixture.store.list_on_host(&host).await.expect("readable")
}

/// The READY ones, once there are `count` and no others.
async fn ready(fixture: &Fixture, count: usize) -> Vec<WarmSandbox> {
    wait_for(|| async {
        let rows = rows(fixture).await;
        let all_ready = rows.iter().all(|row| row.state == WarmState::Ready);
        (all_ready && rows.len() == count).then_some(rows)
    })
    .await
}

/// A service whose agent servers can be dormant.
async fn fixture(change: fn(&mut Policy)) -> Fixture {
    let fixture = Fixture::with_policy(change).await;
    fixture
        .agents
        .share_dormant_servers(fixture.backend.dormant_servers());
    fixture
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

async fn wait_for_passes() {
    tokio::time::sleep(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_claims_a_warm_sandbox_with_its_keys_and_the_pool_replaces_it() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    assert_eq!(fixture.agents.calls().prewarm, 1, "before any start");
    assert!(
        fixture
            .app
            .sandboxes
            .search(&alice_scope(), &first_page())
            .await
            .expect("readable")
            .items
            .is_empty()
    );
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert!(was_warm(&task));
    assert_eq!(task.sandbox_id, warm.id);
    let row = fixture.sandbox(&warm.id).await.expect("a row");
    assert_eq!(row.status, SandboxStatus::Running);
    assert_eq!(row.key_hash, warm.key_hash, "its reports are recognised");
    let init_requests = fixture.agents.init_requests();
    let (_, init_request) = init_requests.first().expect("it was woken");
    let key = fixture.app.sandboxes.session_key(&row).expect("shown");
    assert_eq!(
        init_request.session_key.expose_secret(),
        key.expose_secret()
    );
    assert_eq!(
        init_request.webhook_url.as_str(),
        "http://127.0.0.1:3000/api/v1/webhooks"
    );
    let next = ready(&fixture, 1).await.remove(0);
    assert_ne!(next.id, warm.id);
    let counts = fixture.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn sandboxes_without_a_conversation_are_warm_too() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    assert_eq!(started.expect("within the caps").id, warm.id);
    wait_until_running(&fixture, &warm.id).await;
    assert_eq!(fixture.agents.init_requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn three_of_twenty_parallel_starts_are_warm_and_share_nothing() {
    let fixture = fixture(three_for_many).await;
    let warm = ids(&ready(&fixture, 3).await);
    let starts = (0..20).map(|n| {
        let mut request = start_input(|_| {});
        request.request.title = Some(format!("start {n}"));
        fixture.start(request)
    });
    let tasks = futures::future::join_all(starts).await;
    let mut sandboxes = BTreeSet::new();
    let mut hits = BTreeSet::new();
    for task in &tasks {
        let ended = fixture.wait_until_ended(task).await;
        assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
        if was_warm(&ended) {
            hits.insert(ended.sandbox_id.clone());
        }
        sandboxes.insert(ended.sandbox_id);
    }
    assert_eq!(sandboxes.len(), 20);
    assert_eq!(hits, warm);
    assert_eq!(fixture.agents.init_requests().len(), 3);
    let counts = fixture.app.warm_counts();
    assert_eq!((counts.hits, counts.misses), (3, 17));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_releases_its_claim() {
    let fixture = fixture(one_at_most).await;
    ready(&fixture, 1).await;
    fixture.start_and_wait(start_input(|_| {})).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let refused = fixture
        .app
        .starts
        .start(&alice(), start_input(|_| {}))
        .await;
    refused.expect_err("over the cap");
    fixture
        .app
        .sandboxes
        .start(&alice(), None)
        .await
        .expect_err("over the cap");
    let again = ready(&fixture, 1).await.remove(0);
    assert_eq!(again.id, warm.id);
    assert_eq!(fixture.backend.count_sandboxes(), 2);
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_are_adopted_after_a_crash() {
    let fixture = fixture(three).await;
    let before = ids(&ready(&fixture, 3).await);
    let fixture = fixture.kill_and_restart().await;
    wait_for_passes().await;
    assert_eq!(ids(&ready(&fixture, 3).await), before);
    assert_eq!(fixture.backend.count_started_sandboxes(), 3);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert!(was_warm(&task));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_boot_continues_after_a_crash() {
    let fixture = fixture(one).await;
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    let booting = wait_for(|| async { rows(&fixture).await.pop() }).await;
    let fixture = fixture.kill_and_restart().await;
    fixture.agents.set_behavior(FakeBehavior::Responsive);
    let warm = ready(&fixture, 1).await.remove(0);
    assert_eq!(warm.id, booting.id);
    assert_eq!(fixture.backend.count_sandboxes(), 1);
}

/// The process died between the claim and the row, or right after the row.
#[tokio::test(start_paused = true)]
async fn unused_claims_are_removed_and_stored_ones_are_kept() {
    let fixture = fixture(forgetful).await;
    let lost = ready(&fixture, 1).await.remove(0);
    claim(&fixture, &lost).await;
    let kept = wait_for(|| async {
        let rows = rows(&fixture).await;
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
    claim(&fixture, &kept).await;
    domain::sandbox::SandboxRepository::insert(fixture.store.as_ref(), &row, &caps)
        .await
        .expect("stored");
    let fixture = fixture.kill_and_restart().await;
    wait_until_running(&fixture, &kept.id).await;
    let rest = wait_for(|| async {
        let rows = rows(&fixture).await;
        let settled = rows
            .iter()
            .all(|row| row.id != lost.id && row.id != kept.id);
        (settled && fixture.backend.count_sandboxes() == 2 && rows.len() == 1).then_some(rows)
    })
    .await;
    assert_eq!(rest.len(), 1);
    wait_for_passes().await;
    wait_until_running(&fixture, &kept.id).await;
}

#[tokio::test(start_paused = true)]
async fn the_pool_is_emptied_when_it_is_switched_off() {
    let fixture = fixture(three).await;
    ready(&fixture, 3).await;
    let off = fixture.replica(|_| {});
    fixture.kill().await;
    wait_for(|| async {
        (rows(&off).await.is_empty() && off.backend.count_sandboxes() == 0).then_some(())
    })
    .await;
    let task = off.start_and_wait(start_input(|_| {})).await;
    assert!(!task.timings.contains_key("WARM_SANDBOX"));
    assert!(!task.timings.contains_key("NO_WARM_SANDBOX"));
}

#[tokio::test(start_paused = true)]
async fn outdated_warm_sandboxes_are_replaced() {
    let fixture = fixture(one).await;
    let old = ready(&fixture, 1).await.remove(0);
    fixture.backend.set_recipe("another image");
    wait_until_replaced(&fixture, &old).await;
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_of_other_specs_are_not_claimed() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    fixture
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let started = fixture.app.sandboxes.start(&alice(), Some("other")).await;
    let started = started.expect("within the caps");
    assert_ne!(started.id, warm.id);
    wait_until_running(&fixture, &started.id).await;
    fixture.specs.set(vec![FakeSpecs::spec("other")]);
    wait_until_replaced(&fixture, &warm).await;
}

#[tokio::test(start_paused = true)]
async fn an_ended_warm_sandbox_is_replaced_at_once() {
    let fixture = fixture(one).await;
    let old = ready(&fixture, 1).await.remove(0);
    fixture.backend.exit(&old.id);
    wait_until_replaced(&fixture, &old).await;
}

/// Nothing lists all sandboxes of a backend for it.
#[tokio::test(start_paused = true)]
async fn health_checks_find_a_warm_sandbox_that_ended_unnoticed() {
    let fixture = fixture(one).await;
    let old = ready(&fixture, 1).await.remove(0);
    fixture.backend.exit_without_event(&old.id);
    let url = old.endpoints.clone().expect("it has an address").agent_url;
    let agents = &fixture.agents;
    agents.set_behavior_at(&url, FakeBehavior::Unreachable);
    wait_until_replaced(&fixture, &old).await;
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_warm_sandbox_is_replaced() {
    let fixture = fixture(one).await;
    let old = ready(&fixture, 1).await.remove(0);
    let url = old.endpoints.clone().expect("it has an address").agent_url;
    fixture
        .agents
        .set_behavior_at(&url, FakeBehavior::Unreachable);
    wait_until_replaced(&fixture, &old).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_warm_sandbox_is_replaced() {
    let fixture = fixture(short_lived).await;
    let old = wait_for(|| async { rows(&fixture).await.pop() }).await;
    wait_for(|| async { (!ids(&rows(&fixture).await).contains(&old.id)).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_dormant_is_tried_once() {
    // Its agent servers are never dormant.
    let fixture = Fixture::with_policy(three).await;
    wait_for(|| async {
        let counts = fixture.app.warm_counts();
        (counts.refused_recipes == 1 && fixture.backend.count_sandboxes() == 0).then_some(())
    })
    .await;
    wait_for_passes().await;
    let tried = fixture.backend.starts();
    assert!(tried <= 3, "{tried}");
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert!(!was_warm(&task));
    fixture
        .agents
        .share_dormant_servers(fixture.backend.dormant_servers());
    fixture.backend.set_recipe("an image that can");
    ready(&fixture, 3).await;
}

#[tokio::test(start_paused = true)]
async fn failed_boots_back_off() {
    let fixture = Fixture::without_settings(one);
    fixture
        .agents
        .share_dormant_servers(fixture.backend.dormant_servers());
    fixture.backend.fail_starts(3);
    ready(&fixture, 1).await;
    let counts = fixture.app.warm_counts();
    assert_eq!(counts.failed_boots, 3);
    assert_eq!(fixture.backend.count_sandboxes(), 1);
}

#[tokio::test(start_paused = true)]
async fn warm_and_running_sandboxes_together_stay_within_the_cap() {
    let fixture = fixture(room_for_four).await;
    ready(&fixture, 3).await;
    for left in [3, 2, 1, 0] {
        let started = fixture.app.sandboxes.start(&alice(), None).await;
        wait_until_running(&fixture, &started.expect("within the cap").id).await;
        ready(&fixture, left).await;
        assert!(fixture.backend.count_sandboxes() <= 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_start_boots_before_warm_sandboxes() {
    let fixture = fixture(one_turn).await;
    fixture
        .specs
        .set(vec![FakeSpecs::spec("fake"), FakeSpecs::spec("other")]);
    let warm = ready(&fixture, 1).await.remove(0);
    // Later boots do not answer.
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    fixture.backend.exit(&warm.id);
    wait_for(|| async {
        let rows = rows(&fixture).await;
        rows.iter()
            .any(|row| row.state == WarmState::Booting)
            .then_some(())
    })
    .await;
    let started = fixture.app.sandboxes.start(&alice(), Some("other")).await;
    let id = started.expect("within the caps").id;
    wait_for(|| async { (fixture.app.warm_counts().gave_way > 0).then_some(()) }).await;
    fixture.agents.set_behavior(FakeBehavior::Responsive);
    wait_until_running(&fixture, &id).await;
    ready(&fixture, 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_unwakeable_warm_sandbox_is_replaced_by_a_cold_one() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    let url = warm.endpoints.clone().expect("it has an address").agent_url;
    fixture.agents.refuse_to_wake(&url);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    assert_eq!(task.sandbox_id, warm.id);
    assert!(fixture.agents.init_requests().is_empty());
    let row = fixture.sandbox(&warm.id).await.expect("a row");
    assert_ne!(row.agent_url.as_deref(), Some(&url));
}

/// A container keeps its environment for life.
#[tokio::test(start_paused = true)]
async fn a_sandbox_that_boots_dormant_after_a_pause_is_woken() {
    let fixture = fixture(one).await;
    fixture.backend.set_keeps_environment(true);
    ready(&fixture, 1).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let id = &task.sandbox_id;
    fixture
        .app
        .sandboxes
        .pause(&alice_scope(), id)
        .await
        .expect("paused");
    fixture
        .app
        .sandboxes
        .resume(&alice_scope(), id)
        .await
        .expect("resumed");
    wait_until_running(&fixture, id).await;
    let woken = fixture.agents.init_requests();
    let keys: BTreeSet<_> = woken
        .iter()
        .map(|(_, init_request)| init_request.session_key.expose_secret())
        .collect();
    assert_eq!((woken.len(), keys.len()), (2, 1));
}

/// A crash between the claim and the wake-up.
#[tokio::test(start_paused = true)]
async fn a_claimed_sandbox_is_woken_after_a_crash() {
    let fixture = fixture(one).await;
    let warm = ready(&fixture, 1).await.remove(0);
    fixture
        .agents
        .set_behavior(FakeBehavior::Slow(Duration::from_millis(300)));
    let task = fixture.start(start_input(|_| {})).await;
    let fixture = fixture.kill_and_restart().await;
    fixture.agents.set_behavior(FakeBehavior::Responsive);
    let ended = fixture.wait_until_ended(&task).await;
    assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    assert_eq!(ended.sandbox_id, warm.id);
    assert_eq!(fixture.agents.init_requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn processes_of_a_host_share_its_pool() {
    let one = fixture(shared).await;
    let two = one.replica(shared);
    ready(&one, 3).await;
    wait_for_passes().await;
    assert_eq!(ready(&two, 3).await.len(), 3);
    assert_eq!(one.backend.count_sandboxes(), 3);
    for (n, fixture) in [&one, &two, &one].into_iter().enumerate() {
        let mut request = start_input(|_| {});
        request.request.title = Some(format!("start {n}"));
        let task = fixture.start_and_wait(request).await;
        assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    }
    ready(&one, 3).await;
}
