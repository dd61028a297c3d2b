//! The ports of sandbox rows.

mod hosts;
mod warm;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::conversation::ExecutionStatus;
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::{IdempotencyCheck, IdempotentResponse};
use domain::error::{Entity, ReachedCap, StoreError};
use domain::id::{HostId, OwnerId, SandboxId, SpecId, UserId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{
    DesiredState, HostSandboxRepository, NewSessionKey, RetirementReason, Sandbox, SandboxCaps,
    SandboxFacts, SandboxKeyRepository, SandboxOccupancy, SandboxRepository, SandboxStatus,
    SandboxView,
};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;

use crate::state::MemoryState;
use crate::{MemoryStore, page};

impl MemoryState {
    fn visible_sandboxes<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Sandbox> {
        self.sandboxes.values().filter(move |it| match scope {
            Scope::Owner(user) => it.owner == *user && it.desired != DesiredState::Deleted,
            Scope::System => true,
        })
    }

    fn check_caps(&self, user: &UserId, caps: SandboxCaps) -> Result<(), StoreError> {
        let counted = || {
            self.sandboxes
                .values()
                .filter(|it| it.desired == DesiredState::Running && it.status.is_up())
        };
        let reached = |count: usize, cap: u32| u32::try_from(count).is_ok_and(|n| n >= cap);
        let of_user = counted().filter(|it| it.owner.user() == *user).count();
        if reached(of_user, caps.per_user) {
            return Err(StoreError::CapReached(ReachedCap::PerUser(caps.per_user)));
        }
        if reached(counted().count(), caps.overall) {
            return Err(StoreError::CapReached(ReachedCap::Overall(caps.overall)));
        }
        Ok(())
    }

    /// Whether the reason applies to this sandbox, which no running conversation or unfinished start uses.
    fn can_retire(&self, sandbox: &Sandbox, reason: RetirementReason) -> bool {
        let mut conversations = self
            .conversations
            .values()
            .map(|row| &row.conversation)
            .filter(|it| it.sandbox_id == sandbox.id);
        let applies = match reason {
            RetirementReason::IdleSince(since) => {
                sandbox.desired == DesiredState::Running
                    && sandbox.status == SandboxStatus::Running
                    && sandbox.updated_at < since
                    && conversations.clone().all(|it| it.updated_at < since)
            }
            RetirementReason::OlderThan(created_before) => {
                sandbox.desired != DesiredState::Deleted && sandbox.created_at < created_before
            }
        };
        let busy = conversations.any(|it| it.execution_status == Some(ExecutionStatus::Running));
        let starting = self
            .tasks
            .values()
            .any(|row| row.task.sandbox_id == sandbox.id && !row.task.status.is_terminal());
        applies && !busy && !starting
    }

    /// Resumes a sandbox that is not up, within the caps.
    pub(crate) fn resume(
        &mut self,
        mut sandbox: Sandbox,
        caps: SandboxCaps,
        at: Timestamp,
    ) -> Result<Sandbox, StoreError> {
        self.check_active_owner(&sandbox.owner)?;
        self.check_caps(&sandbox.owner.user(), caps)?;
        sandbox.status = SandboxStatus::Starting;
        sandbox.status_detail = None;
        sandbox.desired = DesiredState::Running;
        sandbox.updated_at = at;
        self.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
        Ok(sandbox)
    }

    /// The occupancy of a sandbox.
    pub(crate) fn occupancy(&self, sandbox: &Sandbox) -> SandboxOccupancy {
        let inside = self.conversations.values().map(|row| &row.conversation);
        let inside = inside.filter(|it| it.sandbox_id == sandbox.id);
        let starting = self
            .tasks
            .values()
            .filter(|row| row.task.sandbox_id == sandbox.id && !row.task.status.is_terminal());
        let count = inside.clone().count() + starting.clone().filter(|row| !row.begun).count();
        let changed = inside.map(|it| it.updated_at);
        let used = changed.chain(starting.map(|row| row.task.created_at)).max();
        SandboxOccupancy {
            conversations: u32::try_from(count).unwrap_or(u32::MAX),
            used_at: used.unwrap_or(sandbox.created_at),
            sandbox: sandbox.clone(),
        }
    }

    /// Checks that the sandbox can be inserted now.
    pub(crate) fn check_insert(
        &self,
        sandbox: &Sandbox,
        caps: SandboxCaps,
    ) -> Result<(), StoreError> {
        self.check_active_owner(&sandbox.owner)?;
        self.check_caps(&sandbox.owner.user(), caps)?;
        let taken = |it: &Sandbox| it.id == sandbox.id || it.key_hash == sandbox.key_hash;
        if self.sandboxes.values().any(taken) {
            return Err(StoreError::Conflict {
                entity: Entity::Sandbox,
            });
        }
        Ok(())
    }
}

impl MemoryStore {
    pub(crate) fn publish_sandbox(&self, sandbox: &Sandbox) {
        self.publish(StoreChange::Sandbox {
            id: sandbox.id.clone(),
            host: sandbox.host.clone(),
            is_wanted: sandbox.desired == DesiredState::Running,
        });
    }
}

#[async_trait]
impl SandboxRepository for MemoryStore {
    async fn insert(&self, sandbox: &Sandbox, caps: &SandboxCaps) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.check_insert(sandbox, *caps)?;
        state.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
        drop(state);
        self.publish_sandbox(sandbox);
        Ok(())
    }

    async fn insert_once(
        &self,
        sandbox: &Sandbox,
        caps: &SandboxCaps,
        answer: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError> {
        let mut state = self.lock();
        let known = state.check_idempotency(&answer.request);
        if known == IdempotencyCheck::New {
            state.check_insert(sandbox, *caps)?;
            state.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
            state.store_response(answer);
            drop(state);
            self.publish_sandbox(sandbox);
        }
        Ok(known)
    }

    async fn find(&self, scope: &Scope, id: &SandboxId) -> Result<Option<Sandbox>, StoreError> {
        let state = self.lock();
        Ok(state
            .visible_sandboxes(scope)
            .find(|it| it.id == *id)
            .cloned())
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[SandboxId],
    ) -> Result<Vec<Option<Sandbox>>, StoreError> {
        let state = self.lock();
        let find = |id: &SandboxId| {
            state
                .visible_sandboxes(scope)
                .find(|it| it.id == *id)
                .cloned()
        };
        Ok(ids.iter().map(find).collect())
    }

    async fn search(
        &self,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<Page<SandboxView>, StoreError> {
        let state = self.lock();
        let rows = state
            .visible_sandboxes(scope)
            .map(|it| ((it.created_at.micros(), it.id.to_string()), it.clone()));
        Ok(page::page_by_count("sandboxes", page, true, rows)?.map(SandboxView::from))
    }

    async fn list_running(
        &self,
        owner: &OwnerId,
        spec: &SpecId,
    ) -> Result<Vec<SandboxOccupancy>, StoreError> {
        let state = self.lock();
        let running = |it: &&Sandbox| {
            it.owner == *owner
                && it.spec_id == *spec
                && it.desired == DesiredState::Running
                && it.status == SandboxStatus::Running
        };
        let sandboxes = state.sandboxes.values().filter(running);
        Ok(sandboxes.map(|it| state.occupancy(it)).collect())
    }

    async fn set_desired(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
        caps: &SandboxCaps,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let mut state = self.lock();
        let Some(mut sandbox) = state
            .visible_sandboxes(scope)
            .find(|it| it.id == *id && it.desired != DesiredState::Deleted)
            .cloned()
        else {
            return Ok(None);
        };
        match desired {
            DesiredState::Running if sandbox.desired == desired && sandbox.status.is_up() => {
                return Ok(Some(sandbox));
            }
            DesiredState::Running => {
                let sandbox = state.resume(sandbox, *caps, at)?;
                self.publish_sandbox(&sandbox);
                return Ok(Some(sandbox));
            }
            DesiredState::Paused if sandbox.desired == desired => return Ok(Some(sandbox)),
            DesiredState::Paused => sandbox.paused_at = Some(at),
            DesiredState::Deleted => {}
        }
        sandbox.desired = desired;
        sandbox.updated_at = at;
        state.sandboxes.insert(id.clone(), sandbox.clone());
        self.publish_sandbox(&sandbox);
        Ok(Some(sandbox))
    }
}

#[async_trait]
impl SandboxKeyRepository for MemoryStore {
    async fn find_by_key(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError> {
        let state = self.lock();
        Ok(state
            .sandboxes
            .values()
            .find(|it| it.key_hash == *hash)
            .cloned())
    }

    async fn find_by_callback_token(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError> {
        let state = self.lock();
        let mut all = state.sandboxes.values();
        Ok(all
            .find(|it| it.callback_token_hash.as_ref() == Some(hash))
            .cloned())
    }

    async fn replace_session_key(
        &self,
        id: &SandboxId,
        old: &KeyHash,
        new: &NewSessionKey,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let mut state = self.lock();
        let stored = state.sandboxes.get_mut(id);
        let Some(sandbox) =
            stored.filter(|it| it.desired == DesiredState::Running && it.key_hash == *old)
        else {
            return Ok(None);
        };
        sandbox.replace_session_key(new, at);
        self.publish_sandbox(sandbox);
        Ok(Some(sandbox.clone()))
    }
}

#[async_trait]
impl HostSandboxRepository for MemoryStore {
    async fn record_facts(
        &self,
        id: &SandboxId,
        expected: DesiredState,
        facts: &SandboxFacts,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let Some(sandbox) = state
            .sandboxes
            .get_mut(id)
            .filter(|it| it.desired == expected)
        else {
            return Ok(false);
        };
        let before = sandbox.clone();
        sandbox.apply_facts(facts);
        if *sandbox != before {
            sandbox.updated_at = at;
            self.publish_sandbox(sandbox);
        }
        Ok(true)
    }

    async fn list_unsettled(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let state = self.lock();
        let is_unsettled = |it: &&Sandbox| {
            it.host == *host
                && match it.desired {
                    DesiredState::Deleted => true,
                    DesiredState::Paused => it.status.is_up(),
                    DesiredState::Running => it.status == SandboxStatus::Starting,
                }
        };
        let mut found: Vec<Sandbox> = state
            .sandboxes
            .values()
            .filter(is_unsettled)
            .cloned()
            .collect();
        found.sort_by(|one, other| (one.updated_at, &one.id).cmp(&(other.updated_at, &other.id)));
        found.truncate(limit);
        Ok(found)
    }

    async fn list_on_host(
        &self,
        host: &HostId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let state = self.lock();
        Ok(state
            .sandboxes
            .values()
            .filter(|it| it.host == *host && after.is_none_or(|after| it.id > *after))
            .take(limit)
            .cloned()
            .collect())
    }

    async fn list_retirable(
        &self,
        host: &HostId,
        reason: RetirementReason,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let state = self.lock();
        let mut retirable: Vec<Sandbox> = state
            .sandboxes
            .values()
            .filter(|it| it.host == *host && state.can_retire(it, reason))
            .cloned()
            .collect();
        retirable.sort_by(|a, b| (a.updated_at, &a.id).cmp(&(b.updated_at, &b.id)));
        retirable.truncate(limit);
        Ok(retirable)
    }

    async fn retire(
        &self,
        id: &SandboxId,
        reason: RetirementReason,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let mut state = self.lock();
        let stored = state.sandboxes.get(id).cloned();
        let Some(mut sandbox) = stored.filter(|it| state.can_retire(it, reason)) else {
            return Ok(None);
        };
        sandbox.desired = reason.desired();
        if sandbox.desired == DesiredState::Paused {
            sandbox.paused_at = Some(at);
        }
        sandbox.updated_at = at;
        state.sandboxes.insert(id.clone(), sandbox.clone());
        self.publish_sandbox(&sandbox);
        Ok(Some(sandbox))
    }

    async fn annotate(&self, host: &HostId, detail: Option<&str>) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let mut count = 0;
        for sandbox in state.sandboxes.values_mut() {
            let is_annotated = !matches!(
                sandbox.status,
                SandboxStatus::Error | SandboxStatus::Missing
            );
            if sandbox.host == *host && is_annotated {
                sandbox.status_detail = detail.map(str::to_owned);
                count += 1;
            }
        }
        Ok(count)
    }

    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let mut state = self.lock();
        // The agent server is removed with its sandbox, so no agent deletion remains.
        for deletion in state.deleted.values_mut().filter(|it| it.sandbox == *id) {
            deletion.pending = false;
        }
        Ok(state.sandboxes.remove(id).is_some())
    }
}
