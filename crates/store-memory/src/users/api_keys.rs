//! `ApiKeyRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{ApiKeyId, UserId};
use domain::user::identity::{
    ApiKey, ApiKeyRepository, ApiKeyWithRole, KeyHash, Role, USER_NAME_REUSE_GRACE, User,
};

use crate::MemoryStore;
use crate::state::MemoryState;

impl MemoryState {
    /// Refuses a key with a taken id or hash.
    pub(crate) fn check_key_is_new(&self, key: &ApiKey) -> Result<(), StoreError> {
        let taken = |it: &ApiKey| it.id == key.id || it.hash == key.hash;
        if self.keys.values().any(taken) {
            return Err(StoreError::Conflict {
                entity: Entity::ApiKey,
            });
        }
        Ok(())
    }

    /// Ensures that the user exists. A new user gets this role. Returns whether the user is new.
    pub(crate) fn ensure_user(
        &mut self,
        user: &UserId,
        role: Role,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        if let Some(row) = self.users.get(user) {
            let Some(deleted_at) = row.deleted_at else {
                return Ok(false);
            };
            if deleted_at.plus(USER_NAME_REUSE_GRACE) > at || !self.is_purged(user) {
                return Err(StoreError::UserNameReserved);
            }
        }
        let new = User {
            id: user.clone(),
            role,
            created_at: at,
            deleted_at: None,
            disabled_at: None,
        };
        self.users.insert(user.clone(), new);
        Ok(true)
    }

    /// The key and the role of its user, unless the deletion of the user has begun.
    pub(crate) fn key_with_role(&self, id: ApiKeyId) -> Option<ApiKeyWithRole> {
        let key = self.keys.get(&id)?;
        let user = self.users.get(&key.user);
        let user = user.filter(|it| it.is_active())?;
        let bound = key.organization;
        Some(ApiKeyWithRole {
            key: key.clone(),
            role: user.role,
            membership: bound.and_then(|id| self.active_membership(id, &key.user)),
        })
    }

    /// Whether the user can sign in and use keys.
    pub(crate) fn is_active(&self, user: &UserId) -> bool {
        self.users.get(user).is_some_and(User::is_active)
    }

    /// Whether the user exists and their deletion has not begun.
    pub(crate) fn user_exists(&self, user: &UserId) -> bool {
        let row = self.users.get(user);
        row.is_some_and(|it| it.deleted_at.is_none())
    }
}

#[async_trait]
impl ApiKeyRepository for MemoryStore {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.check_key_is_new(key)?;
        state.ensure_user(&key.user, Role::User, key.created_at)?;
        state.keys.insert(key.id, key.clone());
        Ok(())
    }

    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKeyWithRole>, StoreError> {
        let state = self.lock();
        let key = state.keys.values().find(|it| it.hash == *hash);
        Ok(key.and_then(|key| state.key_with_role(key.id)))
    }

    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError> {
        let state = self.lock();
        let mut keys: Vec<ApiKey> = state
            .keys
            .values()
            .filter(|it| user.is_none_or(|user| it.user == *user))
            .cloned()
            .collect();
        keys.sort_by_key(|it| (it.created_at, it.id));
        Ok(keys)
    }

    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError> {
        Ok(self.lock().keys.remove(&id).is_some())
    }

    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError> {
        if let Some(key) = self.lock().keys.get_mut(&id) {
            key.last_used_at = Some(at);
        }
        Ok(())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.keys.values();
        let old = old.filter(|it| it.expires_at.is_some_and(|end| end < before));
        let old: Vec<ApiKeyId> = old.map(|it| it.id).take(limit).collect();
        for id in &old {
            state.keys.remove(id);
        }
        Ok(old.len() as u64)
    }
}
