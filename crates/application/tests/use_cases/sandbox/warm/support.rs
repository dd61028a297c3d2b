//! Helpers of the tests of warm sandboxes.

use domain::id::SandboxId;
use domain::sandbox::{Sandbox, SandboxStatus, WarmRepository, WarmSandbox, WarmState};

use super::rows;
use crate::fixture::{Fixture, alice, alice_scope, clock, wait_for};

pub(super) fn first_page() -> domain::page::PageRequest {
    domain::page::PageRequest::default()
}

pub(super) fn sandbox_of(warm: &WarmSandbox) -> Sandbox {
    let now = clock().now();
    Sandbox {
        id: warm.id.clone(),
        owner: alice(),
        spec_id: warm.spec_id.clone(),
        host: warm.host.clone(),
        desired: domain::sandbox::DesiredState::Running,
        status: SandboxStatus::Starting,
        status_detail: None,
        key_hash: warm.key_hash,
        session_key: warm.session_key.clone(),
        secret_key: warm.secret_key.clone(),
        agent_url: None,
        exposed_urls: std::sync::Arc::default(),
        workspace: None,
        has_proxy: false,
        egress: None,
        automation_key: None,
        created_at: now,
        updated_at: now,
        paused_at: None,
        callback_token_hash: None,
    }
}

pub(super) async fn claim(fixture: &Fixture, warm: &WarmSandbox) {
    let claimed = fixture
        .store
        .claim(&warm.host, &warm.spec_id, &warm.recipe, clock().now())
        .await;
    let claimed = claimed.expect("writable").expect("it is ready");
    assert_eq!(claimed.id, warm.id);
}

pub(super) async fn wait_until_running(fixture: &Fixture, id: &SandboxId) -> Sandbox {
    wait_for(|| async {
        let row = fixture.sandbox(id).await;
        row.filter(|row| row.status == SandboxStatus::Running)
    })
    .await
}

/// Waits until another one is ready and nothing is left of `old`.
pub(super) async fn wait_until_replaced(fixture: &Fixture, old: &WarmSandbox) {
    wait_for(|| async {
        let rows = rows(fixture).await;
        let [row] = rows.as_slice() else {
            return None;
        };
        let gone = fixture.backend.count_sandboxes() == 1 + count_sandboxes_of_user(fixture).await;
        (row.id != old.id && row.state == WarmState::Ready && gone).then_some(())
    })
    .await;
}

pub(super) async fn count_sandboxes_of_user(fixture: &Fixture) -> usize {
    let all = fixture
        .app
        .sandboxes
        .search(&alice_scope(), &first_page())
        .await;
    all.expect("readable").items.len()
}
