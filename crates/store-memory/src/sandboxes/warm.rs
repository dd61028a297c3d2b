//! `WarmRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{HostId, SandboxId, SpecId};
use domain::sandbox::{
    MAX_WARM_SANDBOXES_PER_HOST, SandboxEndpoints, WarmRepository, WarmSandbox, WarmState,
};

use crate::MemoryStore;
use crate::state::MemoryState;

impl MemoryState {
    fn warm_on_host<'a>(&'a self, host: &'a HostId) -> impl Iterator<Item = &'a WarmSandbox> {
        self.warm.values().filter(move |it| it.host == *host)
    }

    /// Changes the state if it is `from`.
    fn change_warm_state(
        &mut self,
        id: &SandboxId,
        (from, to): (WarmState, WarmState),
        at: Timestamp,
    ) -> Option<&mut WarmSandbox> {
        let warm = self.warm.get_mut(id).filter(|it| it.state == from)?;
        warm.state = to;
        warm.updated_at = at;
        Some(warm)
    }
}

#[async_trait]
impl WarmRepository for MemoryStore {
    async fn insert(&self, warm: &WarmSandbox, max_count: u32) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let is_counted =
            |it: &&WarmSandbox| it.spec_id == warm.spec_id && it.state != WarmState::Claimed;
        let counted = state.warm_on_host(&warm.host).filter(is_counted).count();
        let is_full = u32::try_from(counted).is_ok_and(|n| n >= max_count)
            || state.warm_on_host(&warm.host).count() >= MAX_WARM_SANDBOXES_PER_HOST;
        if is_full {
            return Ok(false);
        }
        let taken = |it: &WarmSandbox| it.id == warm.id || it.key_hash == warm.key_hash;
        if state.warm.values().any(taken) {
            return Err(StoreError::Conflict {
                entity: Entity::WarmSandbox,
            });
        }
        state.warm.insert(warm.id.clone(), warm.clone());
        Ok(true)
    }

    async fn mark_ready(
        &self,
        id: &SandboxId,
        endpoints: &SandboxEndpoints,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let changed = state.change_warm_state(id, (WarmState::Booting, WarmState::Ready), at);
        Ok(changed
            .map(|it| it.endpoints = Some(endpoints.clone()))
            .is_some())
    }

    async fn claim(
        &self,
        host: &HostId,
        spec: &SpecId,
        recipe: &str,
        at: Timestamp,
    ) -> Result<Option<WarmSandbox>, StoreError> {
        let mut state = self.lock();
        let fits = |it: &&WarmSandbox| {
            it.spec_id == *spec
                && it.recipe == recipe
                && it.state == WarmState::Ready
                && !state.sandboxes.contains_key(&it.id)
        };
        let fitting = state.warm_on_host(host).filter(fits);
        let first = fitting.min_by_key(|it| (it.created_at, it.id.clone()));
        let Some(id) = first.map(|it| it.id.clone()) else {
            return Ok(None);
        };
        let claimed = state.change_warm_state(&id, (WarmState::Ready, WarmState::Claimed), at);
        Ok(claimed.cloned())
    }

    async fn release(&self, id: &SandboxId, at: Timestamp) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if state.sandboxes.contains_key(id) {
            return Ok(false);
        }
        let changed = state.change_warm_state(id, (WarmState::Claimed, WarmState::Ready), at);
        Ok(changed.is_some())
    }

    async fn list_on_host(&self, host: &HostId) -> Result<Vec<WarmSandbox>, StoreError> {
        let state = self.lock();
        let mut all: Vec<_> = state.warm_on_host(host).cloned().collect();
        all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        all.truncate(MAX_WARM_SANDBOXES_PER_HOST);
        Ok(all)
    }

    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError> {
        Ok(self.lock().warm.remove(id).is_some())
    }

    async fn dismiss(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let warm = state.warm.get(id);
        if warm.is_none_or(|it| it.state == WarmState::Claimed) {
            return Ok(false);
        }
        Ok(state.warm.remove(id).is_some())
    }
}
