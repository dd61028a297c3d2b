//! Sandboxes that runs of automations leave behind.

use std::collections::HashSet;
use std::time::Duration;

use application::sandboxes::EndedRuns;
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, SandboxId};
use domain::sandbox::{DesiredState, Sandbox, SandboxCaps, SandboxRepository, SandboxStatus};
use domain::user::identity::KeyHash;

use crate::fixture::{Fixture, alice, clock, wait_for};

/// Longer than any run.
const AGE: Duration = Duration::from_secs(61 * 60);

/// Stores a copy of a sandbox that is this old.
async fn store_copy(fixture: &Fixture, of: &Sandbox, id: &str, age: Duration, is_of_run: bool) {
    let id: SandboxId = id.parse().expect("an id");
    let row = Sandbox {
        key_hash: KeyHash::of(id.as_str()),
        callback_token_hash: Some(KeyHash::of(&format!("token of {id}"))),
        automation_key: is_of_run.then(|| run_of(id.as_str())),
        created_at: clock().now().minus(age),
        desired: DesiredState::Paused,
        status: SandboxStatus::Paused,
        id,
        ..of.clone()
    };
    let caps = SandboxCaps {
        per_user: 9,
        overall: 9,
    };
    let inserted = fixture.store.insert(&row, &caps).await;
    inserted.expect("stored");
}

/// The run of a sandbox.
fn run_of(id: &str) -> ApiKeyId {
    ApiKeyId::new(uuid::Uuid::from_u128(if id == "young" { 8 } else { 7 }))
}

async fn left_behind(fixture: &Fixture, process_start: Option<Timestamp>) -> Vec<String> {
    left_by(fixture, EndedRuns::Earlier(process_start)).await
}

async fn left_by(fixture: &Fixture, ended: EndedRuns) -> Vec<String> {
    let left = fixture.app.sandboxes.of_ended_runs(&ended).await;
    let left = left.expect("readable").into_iter();
    let mut left: Vec<_> = left.map(|row| row.id.to_string()).collect();
    left.sort();
    left
}

#[tokio::test(start_paused = true)]
async fn sandboxes_of_ended_runs_are_found_and_deleted() {
    let fixture = Fixture::new().await;
    let started = fixture.app.sandboxes.start(&alice(), None).await;
    let row = started.expect("within the caps");
    let minute = Duration::from_secs(60);
    store_copy(&fixture, &row, "left", AGE, true).await;
    store_copy(&fixture, &row, "young", minute, true).await;
    store_copy(&fixture, &row, "of-a-user", AGE, false).await;
    assert_eq!(left_behind(&fixture, None).await, ["left"]);
    let ended = EndedRuns::Reported(HashSet::from([run_of("young")]));
    assert_eq!(left_by(&fixture, ended).await, ["young"]);
    // The process that prepared the young one has ended.
    let now = clock().now();
    assert_eq!(left_behind(&fixture, Some(now)).await, ["left", "young"]);
    let earlier = Some(now.minus(2 * minute));
    assert_eq!(left_behind(&fixture, earlier).await, ["left"]);
    assert_eq!(
        left_behind(&fixture, Some(now.minus(2 * AGE))).await,
        ["left"]
    );

    let earlier = EndedRuns::Earlier(None);
    let left = fixture.app.sandboxes.of_ended_runs(&earlier).await;
    let left = left.expect("readable").remove(0);
    fixture.app.sandboxes.delete_after_run(&left).await;
    wait_for(|| async { fixture.sandbox(&left.id).await.is_none().then_some(()) }).await;
    assert!(left_behind(&fixture, None).await.is_empty());
}
