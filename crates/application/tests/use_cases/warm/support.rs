//! What the tests of warm sandboxes share.

use domain::id::SandboxId;
use domain::sandbox::{Sandbox, SandboxStatus, WarmRepository, WarmSandbox, WarmState};

use super::rows;
use crate::world::{World, alice, clock, mine, until};

pub(super) fn page() -> domain::page::PageRequest {
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
        created_at: now,
        updated_at: now,
        paused_at: None,
    }
}

pub(super) async fn claim(world: &World, warm: &WarmSandbox) {
    let claimed = world
        .store
        .claim(&warm.host, &warm.spec_id, &warm.recipe, clock().now())
        .await;
    let claimed = claimed.expect("writable").expect("it is ready");
    assert_eq!(claimed.id, warm.id);
}

pub(super) async fn running(world: &World, id: &SandboxId) -> Sandbox {
    until(|| async {
        let row = world.sandbox(id).await;
        row.filter(|row| row.status == SandboxStatus::Running)
    })
    .await
}

/// Another one is ready, and nothing is left of this one.
pub(super) async fn replaced(world: &World, old: &WarmSandbox) {
    until(|| async {
        let rows = rows(world).await;
        let [row] = rows.as_slice() else {
            return None;
        };
        let gone = world.backend.existing() == 1 + up(world).await;
        (row.id != old.id && row.state == WarmState::Ready && gone).then_some(())
    })
    .await;
}

pub(super) async fn up(world: &World) -> usize {
    let all = world.app.sandboxes.search(&mine(), &page()).await;
    all.expect("readable").items.len()
}
