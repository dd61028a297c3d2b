//! `AdministrationRepository`.

use async_trait::async_trait;
use domain::audit::AuditEntry;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{ApiKeyId, UserId};
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{ApiKey, PurgeCounts};

use crate::MemoryStore;
use crate::state::MemoryState;
use crate::users::purge::OwnerSet;

const USER_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::User,
};
const KEY_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::ApiKey,
};

impl MemoryState {
    fn key_of(&mut self, id: ApiKeyId, user: &UserId) -> Result<&mut ApiKey, StoreError> {
        let key = self.keys.get_mut(&id).filter(|it| it.user == *user);
        key.ok_or(KEY_NOT_FOUND)
    }

    fn administer(
        &mut self,
        change: &AdminChange,
        at: Timestamp,
    ) -> Result<PurgeCounts, StoreError> {
        match change {
            AdminChange::CreateUser { user, role } => {
                let is_new = self.ensure_user(user, *role, at)?;
                let taken = StoreError::Conflict {
                    entity: Entity::User,
                };
                return is_new.then(PurgeCounts::default).ok_or(taken);
            }
            AdminChange::SetRole { user, role } => {
                let row = self.users.get_mut(user);
                let row = row
                    .filter(|it| it.deleted_at.is_none())
                    .ok_or(USER_NOT_FOUND)?;
                row.role = *role;
            }
            AdminChange::SetDisabled { user, disabled } => {
                self.set_disabled(user, *disabled, at)?;
            }
            AdminChange::Organization(change) => return self.change_organization(change, at),
            AdminChange::DeleteUser { user } => {
                self.check_not_last_owner(user, None)?;
                let is_there = self.mark_deleted(user, at);
                return is_there
                    .then(|| self.revoke_access(user, at))
                    .ok_or(USER_NOT_FOUND);
            }
            AdminChange::CreateKey { key, new_user } => {
                self.check_key_is_new(key)?;
                match new_user {
                    Some(role) => {
                        self.ensure_user(&key.user, *role, at)?;
                    }
                    None if self.user_exists(&key.user) => {}
                    None => return Err(USER_NOT_FOUND),
                }
                self.check_key_organization(key)?;
                self.keys.insert(key.id, key.clone());
            }
            AdminChange::RotateKey { old, new, until } => {
                self.check_key_is_new(new)?;
                if !self.user_exists(&new.user) {
                    return Err(KEY_NOT_FOUND);
                }
                let key = self.key_of(*old, &new.user)?;
                if key.is_expired(new.created_at) {
                    return Err(KEY_NOT_FOUND);
                }
                key.expires_at = Some(key.expires_at.map_or(*until, |end| end.min(*until)));
                self.keys.insert(new.id, new.clone());
            }
            AdminChange::RevokeKey { id, user } => {
                self.key_of(*id, user)?;
                self.keys.remove(id);
            }
            AdminChange::SignIn(change) => self.change_sign_in(change, at)?,
        }
        Ok(PurgeCounts::default())
    }
}

#[async_trait]
impl AdministrationRepository for MemoryStore {
    async fn administer(
        &self,
        change: &AdminChange,
        entry: &AuditEntry,
    ) -> Result<PurgeCounts, StoreError> {
        let mut state = self.lock();
        if let Some(caller) = AdminChange::caller(entry) {
            let found = state.identify(caller);
            let role = change.organization().and_then(|id| {
                let user = &found.as_ref()?.user;
                Some(state.active_membership(id, user)?.role)
            });
            change.authorize(entry, found.as_ref(), role)?;
        }
        let purged = state.administer(change, entry.at)?;
        state.audit.insert(entry.id, entry.clone());
        let affected = match change {
            AdminChange::DeleteUser { user } | AdminChange::SetDisabled { user, .. } => {
                Some(OwnerSet::User(user.clone()))
            }
            AdminChange::Organization(change) => {
                Some(OwnerSet::Organization(change.organization()))
            }
            _ => None,
        };
        if let Some(affected) = affected {
            self.publish_sandboxes(&state, &affected);
        }
        Ok(purged)
    }
}
