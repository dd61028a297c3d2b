//! `UserRepository`.

mod administration;
mod api_keys;
mod audit_log;
mod device_logins;
mod egress_requests;
mod identities;
mod organization_changes;
mod organizations;
pub(crate) mod purge;
mod settings;
mod sign_in;
mod spending;
mod usage;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{OwnerId, UserId};
use domain::user::identity::{PurgeCounts, Role, User, UserRepository};

use crate::MemoryStore;
use crate::state::MemoryState;
use crate::users::purge::OwnerSet;

impl MemoryState {
    /// Refuses new objects of a deleted or disabled user, and of a user who is no member of the organization.
    pub(crate) fn check_active_owner(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let user = owner.user();
        let entity = match self.users.get(&user) {
            Some(row) if row.deleted_at.is_some() => Entity::DeletedUser,
            Some(row) if row.disabled_at.is_some() => Entity::DisabledUser,
            _ => match owner.shared_organization() {
                Some(id) if !self.memberships.contains_key(&(id, user)) => Entity::Member,
                _ => return Ok(()),
            },
        };
        Err(StoreError::NotFound { entity })
    }

    /// Whether the user has more than sandboxes marked for removal.
    fn has_rows(&self, user: &UserId) -> bool {
        self.keys.values().any(|it| it.user == *user)
            || self.sessions.values().any(|it| it.user == *user)
            || self.links.values().any(|it| it.user == *user)
            || self.identities.values().any(|it| it.user == *user)
            || self.has_owned_rows(&OwnerSet::User(user.clone()))
    }

    /// Whether nothing of the user is left.
    pub(crate) fn is_purged(&self, user: &UserId) -> bool {
        let theirs = OwnerSet::User(user.clone());
        !self.has_rows(user) && !self.has_sandboxes(&theirs)
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
            disabled_at: None,
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
        self.device_logins
            .retain(|_, it| it.user.as_ref() != Some(user));
        self.identities.retain(|_, it| it.user != *user);
        self.emails.remove(user);
        self.memberships.retain(|(_, member), _| member != user);
        self.current_organizations.remove(user);
        PurgeCounts {
            api_keys: (keys - self.keys.len()) as u64,
            ..self.erase_secrets(&OwnerSet::User(user.clone()), at)
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
        let theirs = OwnerSet::User(user.clone());
        purged += state.purge_owned(&theirs, limit);
        self.publish_sandboxes(&state, &theirs);
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
