//! Several processes on one store: each serves its own host, or they share one.

use std::time::Duration;

use application::Policy;
use domain::id::HostId;
use domain::sandbox::SandboxStatus;
use domain::start_task::StartStatus;

use crate::fixture::{Fixture, alice, alice_scope, start_input, wait_for};

fn elsewhere(policy: &mut Policy) {
    policy.host = HostId::parse("other-host").expect("an id");
}

fn shared(policy: &mut Policy) {
    policy.is_host_shared = true;
    policy.relist_interval = Duration::from_secs(3);
    policy.settle_interval = Duration::from_secs(3);
    policy.claim_interval = Duration::from_secs(1);
    // Leases expire by the real clock: on a busy machine a short one expires while its holder lives.
    policy.lease_ttl = Duration::from_secs(3600);
}

fn shared_with_short_leases(policy: &mut Policy) {
    shared(policy);
    // The real clock nearly stands still in these tests.
    policy.lease_ttl = Duration::from_millis(20);
}

async fn is(fixture: &Fixture, id: &domain::id::SandboxId, status: SandboxStatus) {
    wait_for(|| async {
        let row = fixture.sandbox(id).await?;
        (row.status == status).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_process_of_its_host_acts_on_a_sandbox() {
    let one = Fixture::new().await;
    let two = one.replica(elsewhere);
    let task = one.start_and_wait(start_input(|_| {})).await;
    let sandboxes = &two.app.sandboxes;
    let id = &task.sandbox_id;
    sandboxes.pause(&alice_scope(), id).await.expect("paused");
    is(&one, id, SandboxStatus::Paused).await;
    sandboxes.resume(&alice_scope(), id).await.expect("resumed");
    is(&one, id, SandboxStatus::Running).await;
    sandboxes.delete(&alice_scope(), id).await.expect("deleted");
    wait_for(|| async { (one.backend.count_sandboxes() == 0).then_some(()) }).await;
    assert_eq!(two.backend.starts(), 0, "it is not this one's host");
}

#[tokio::test(start_paused = true)]
async fn a_start_runs_on_the_host_of_its_sandbox_and_can_be_followed_elsewhere() {
    let one = Fixture::new().await;
    let two = one.replica(elsewhere);
    let sandbox = one.app.sandboxes.start(&alice(), None).await;
    let sandbox = sandbox.expect("within the caps");
    is(&one, &sandbox.id, SandboxStatus::Running).await;
    let wanted = start_input(|r| r.sandbox_id = Some(sandbox.id.clone()));
    let streamed = two.app.starts.start_streaming(&alice(), wanted).await;
    let (first, mut updates) = streamed.expect("accepted");
    assert_eq!(first.host, sandbox.host);
    let mut last = first.status;
    while let Some(task) = updates.recv().await {
        assert!(task.status > last, "{:?} after {last:?}", task.status);
        last = task.status;
    }
    assert_eq!(last, StartStatus::Ready);
    assert_eq!(two.backend.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn processes_that_share_a_host_never_start_a_sandbox_twice() {
    let one = Fixture::with_policy(shared).await;
    let two = one.replica(shared);
    let mut started = Vec::new();
    for n in 0..20 {
        let fixture = if n % 2 == 0 { &one } else { &two };
        let mut request = start_input(|_| {});
        request.request.title = Some(format!("start {n}"));
        let task = fixture.app.starts.start(&alice(), request).await;
        match task {
            Ok(task) => started.push(task),
            Err(error) => assert!(error.to_string().contains("10"), "{error}"),
        }
    }
    for task in &started {
        let ended = one.wait_until_ended(task).await;
        assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    }
    assert_eq!(one.backend.count_started_sandboxes(), started.len());
    assert_eq!(one.agents.calls().start as usize, started.len());
}

#[tokio::test(start_paused = true)]
async fn another_process_of_the_host_finishes_the_work_of_a_dead_one() {
    let one = Fixture::with_policy(shared_with_short_leases).await;
    one.backend.set_hanging(true);
    let task = one.start(start_input(|_| {})).await;
    wait_for(|| async {
        let found = one.app.starts.find_many(&alice_scope(), &[task.id]).await;
        let now = found.expect("readable").pop().flatten().expect("there");
        (now.status == StartStatus::WaitingForSandbox).then_some(())
    })
    .await;
    let two = one.replica(shared_with_short_leases);
    let backend = one.backend.clone();
    one.kill().await;
    backend.set_hanging(false);
    let ended = two.wait_until_ended(&task).await;
    assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    assert_eq!(two.backend.count_started_sandboxes(), 1);
}

/// No process waits for an expiry: the leases of the starts are released, and those of the sandboxes that they bring
/// up.
#[tokio::test(start_paused = true)]
async fn a_stopping_process_hands_its_starts_over() {
    let one = Fixture::with_policy(shared).await;
    one.backend.set_hanging(true);
    let task = one.start(start_input(|_| {})).await;
    wait_for(|| async {
        let found = one.app.starts.find_many(&alice_scope(), &[task.id]).await;
        let now = found.expect("readable").pop().flatten().expect("there");
        (now.status == StartStatus::WaitingForSandbox).then_some(())
    })
    .await;
    let two = one.replica(shared);
    assert!(one.app.hand_over(Duration::from_secs(60)).await);
    assert!(one.app.metrics().starts_ended.contains(&("left", 1)));
    one.backend.set_hanging(false);
    let ended = two.wait_until_ended(&task).await;
    assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    assert_eq!(
        ended.attempts, 2,
        "a leaving process does not claim it again"
    );
    assert_eq!(two.backend.count_started_sandboxes(), 1);
    // A process that handed over claims nothing more; new work runs elsewhere.
    let mut later = start_input(|_| {});
    later.request.title = Some("later".to_owned());
    let later = one.start(later).await;
    assert_eq!(
        two.wait_until_ended(&later).await.status,
        StartStatus::Ready
    );
    assert!(one.app.hand_over(Duration::ZERO).await, "there is nothing");
}

/// No other process could continue them.
#[tokio::test(start_paused = true)]
async fn a_stopping_process_without_replicas_continues_its_starts() {
    let one = Fixture::new().await;
    one.backend.set_hanging(true);
    let task = one.start(start_input(|_| {})).await;
    assert!(one.app.hand_over(Duration::ZERO).await);
    one.backend.set_hanging(false);
    assert_eq!(one.wait_until_ended(&task).await.status, StartStatus::Ready);
}

/// A list of a large cluster is long.
#[tokio::test(start_paused = true)]
async fn one_process_of_a_shared_host_compares_its_sandboxes() {
    let intervals = 10;
    let lists_of = async |policy: fn(&mut Policy)| {
        let one = Fixture::with_policy(policy).await;
        let _two = one.replica(policy);
        // The first comparisons of each, which its contact to the backend asks for.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = one.backend.lists();
        tokio::time::sleep(Duration::from_secs(3) * intervals).await;
        one.backend.lists() - before
    };
    assert!((1..=intervals).contains(&lists_of(shared).await));
    // Each of several hosts compares its own.
    let apart = lists_of(|policy| {
        shared(policy);
        policy.is_host_shared = false;
    });
    assert!(apart.await > intervals);
}
