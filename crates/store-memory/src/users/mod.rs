//! `UserRepository`.

mod administration;
mod api_keys;
mod audit_log;
mod settings;
mod sign_in;
mod usage;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{ConversationId, UserId};
use domain::sandbox::DesiredState;
use domain::start_task::StartStatus;
use domain::user::identity::{DELETED_USER_ENTITY, PurgeCounts, Role, User, UserRepository};

use crate::MemoryStore;
use crate::state::MemoryState;

/// Detail of a start task whose owner was deleted; clients can read it.
const DELETED_DURING_START: &str = "The user was deleted before the start had ended.";

impl MemoryState {
    /// Refuses new objects of a deleted user.
    pub(crate) fn check_not_deleted(&self, user: &UserId) -> Result<(), StoreError> {
        match self.users.get(user) {
            Some(row) if row.deleted_at.is_some() => Err(StoreError::NotFound {
                entity: DELETED_USER_ENTITY,
            }),
            _ => Ok(()),
        }
    }

    /// Whether the user has more than sandboxes marked for removal.
    fn has_rows(&self, user: &UserId) -> bool {
        self.keys.values().any(|it| it.user == *user)
            || self.sessions.values().any(|it| it.user == *user)
            || self.links.values().any(|it| it.user == *user)
            || self.settings.contains_key(user)
            || self.secrets.keys().any(|(owner, _)| owner == user)
            || self
                .conversations
                .values()
                .any(|row| row.conversation.owner == *user)
            || self.tasks.values().any(|it| it.task.owner == *user)
            || self.pending.iter().any(|it| it.owner == *user)
            || self
                .idempotent_responses
                .keys()
                .any(|(owner, _)| owner == user)
            || self
                .sandboxes
                .values()
                .any(|it| it.owner == *user && it.desired != DesiredState::Deleted)
    }

    /// Whether nothing of the user is left.
    pub(crate) fn is_purged(&self, user: &UserId) -> bool {
        !self.has_rows(user) && self.sandboxes.values().all(|it| it.owner != *user)
    }

    /// Marks the user as deleted, so that nothing of theirs can be stored. `false` if neither the user nor rows of that name exist.
    pub(crate) fn mark_deleted(&mut self, user: &UserId, at: Timestamp) -> bool {
        if !self.users.contains_key(user) && self.is_purged(user) {
            return false;
        }
        let row = self.users.entry(user.clone()).or_insert_with(|| User {
            id: user.clone(),
            role: Role::User,
            created_at: at,
            deleted_at: None,
        });
        row.deleted_at.get_or_insert(at);
        true
    }

    /// Does what the first call of `UserRepository::purge` does, whatever its limit.
    pub(crate) fn revoke_access(&mut self, user: &UserId, at: Timestamp) -> PurgeCounts {
        let keys = self.keys.len();
        self.keys.retain(|_, it| it.user != *user);
        self.passwords.remove(user);
        self.sessions.retain(|_, it| it.user != *user);
        self.links.retain(|_, it| it.user != *user);
        let mut purged = PurgeCounts {
            api_keys: (keys - self.keys.len()) as u64,
            settings: u64::from(self.settings.remove(user).is_some()),
            secrets: self.purge_secrets(user),
            ..PurgeCounts::default()
        };
        for row in self.tasks.values_mut() {
            if row.task.owner == *user && !row.task.status.is_terminal() {
                row.task.status = StartStatus::Error;
                row.task.detail = Some(DELETED_DURING_START.to_owned());
                row.task.sealed_secrets = None;
                row.task.updated_at = at;
                row.lease_until = None;
                row.fence += 1;
            }
        }
        for sandbox in self.sandboxes.values_mut() {
            if sandbox.owner == *user && sandbox.desired != DesiredState::Deleted {
                sandbox.desired = DesiredState::Deleted;
                sandbox.updated_at = at;
                purged.sandboxes += 1;
            }
        }
        purged
    }

    /// Deletes stored responses, pending messages and records of deleted conversations.
    fn purge_others(&mut self, user: &UserId, budget: &mut usize) -> u64 {
        let responses = self
            .idempotent_responses
            .keys()
            .filter(|(owner, _)| owner == user);
        let responses: Vec<_> = responses.take(*budget).cloned().collect();
        for key in &responses {
            self.idempotent_responses.remove(key);
        }
        *budget -= responses.len();
        let pending = self.purge_pending(user, *budget);
        *budget -= pending;
        let theirs = |id| self.sandboxes.get(id).is_some_and(|it| it.owner == *user);
        let deletions = self.deleted.iter().filter(|(_, it)| theirs(&it.sandbox));
        let deletions: Vec<_> = deletions.map(|(id, _)| *id).take(*budget).collect();
        for id in &deletions {
            self.deleted.remove(id);
        }
        *budget -= deletions.len();
        (responses.len() + pending + deletions.len()) as u64
    }

    fn purge_starts(&mut self, user: &UserId, budget: &mut usize) -> u64 {
        let starts = self.tasks.values().map(|row| &row.task);
        let starts = starts.filter(|it| it.owner == *user).map(|it| it.id);
        let starts: Vec<_> = starts.take(*budget).collect();
        for id in &starts {
            self.tasks.remove(id);
        }
        *budget -= starts.len();
        starts.len() as u64
    }

    /// Deletes conversations; returns the numbers of conversations and events.
    fn purge_conversations(&mut self, user: &UserId, budget: &mut usize) -> (u64, u64) {
        let theirs = self.conversations.values().map(|row| &row.conversation);
        let theirs = theirs.filter(|it| it.owner == *user).map(|it| it.id);
        let theirs: Vec<ConversationId> = theirs.take(*budget).collect();
        let (mut conversations, mut events) = (0, 0);
        for id in theirs {
            let log = self.events.entry(id).or_default();
            let part = log.len().min(*budget);
            log.drain(..part);
            *budget -= part;
            events += part as u64;
            if *budget == 0 {
                break;
            }
            self.events.remove(&id);
            self.conversations.remove(&id);
            *budget -= 1;
            conversations += 1;
        }
        (conversations, events)
    }
}

impl MemoryStore {
    /// Publishes the change of all sandboxes of the user.
    pub(crate) fn publish_sandboxes(&self, state: &MemoryState, user: &UserId) {
        for sandbox in state.sandboxes.values().filter(|it| it.owner == *user) {
            self.publish_sandbox(sandbox);
        }
    }
}

#[async_trait]
impl UserRepository for MemoryStore {
    async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, StoreError> {
        let state = self.lock();
        let users = state.users.values();
        let users = users.filter(|it| after.is_none_or(|after| it.id > *after));
        Ok(users.take(limit).cloned().collect())
    }

    async fn find_oldest(&self) -> Result<Option<User>, StoreError> {
        let state = self.lock();
        let present = state.users.values().filter(|it| it.deleted_at.is_none());
        Ok(present
            .min_by_key(|it| (it.created_at, it.id.clone()))
            .cloned())
    }

    async fn find(&self, user: &UserId) -> Result<Option<User>, StoreError> {
        Ok(self.lock().users.get(user).cloned())
    }

    async fn purge(
        &self,
        user: &UserId,
        at: Timestamp,
        limit: usize,
    ) -> Result<Option<PurgeCounts>, StoreError> {
        let mut state = self.lock();
        if !state.mark_deleted(user, at) {
            return Ok(None);
        }
        let mut purged = state.revoke_access(user, at);
        let mut budget = limit.max(1);
        purged.others = state.purge_others(user, &mut budget);
        purged.start_tasks = state.purge_starts(user, &mut budget);
        (purged.conversations, purged.events) = state.purge_conversations(user, &mut budget);
        purged.more = budget == 0;
        self.publish_sandboxes(&state, user);
        Ok(Some(purged))
    }

    async fn list_partially_deleted(&self, limit: usize) -> Result<Vec<UserId>, StoreError> {
        let state = self.lock();
        let mut partially_deleted: Vec<_> = state
            .users
            .values()
            .filter(|it| it.deleted_at.is_some() && state.has_rows(&it.id))
            .map(|it| (it.deleted_at, it.id.clone()))
            .collect();
        partially_deleted.sort();
        Ok(partially_deleted
            .into_iter()
            .map(|(_, id)| id)
            .take(limit)
            .collect())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.users.values();
        let old = old.filter(|it| it.deleted_at.is_some_and(|at| at < before));
        let old = old.filter(|it| state.is_purged(&it.id)).take(limit);
        let old: Vec<UserId> = old.map(|it| it.id.clone()).collect();
        for id in &old {
            state.users.remove(id);
        }
        Ok(old.len() as u64)
    }
}
