//! `DeviceLoginRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::UserId;
use domain::user::device_login::{DeviceLogin, DeviceLoginRepository, MAX_DEVICE_LOGINS, UserCode};
use domain::user::identity::{ApiKey, KeyHash};

use crate::MemoryStore;
use crate::state::MemoryState;

const NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::DeviceLogin,
};

impl MemoryState {
    /// Confirms a device login for this user, or denies it without one.
    pub(super) fn decide_device(
        &mut self,
        code: &UserCode,
        user: Option<&UserId>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let is_waiting =
            |it: &DeviceLogin| it.user.is_none() && !it.is_denied && it.expires_at > now;
        let mut all = self.device_logins.values_mut();
        let found = all.find(|it| it.code == *code && is_waiting(it));
        let found = found.ok_or(NOT_FOUND)?;
        found.user = user.cloned();
        found.is_denied = user.is_none();
        Ok(())
    }

    pub(super) fn redeem_device(
        &mut self,
        hash: &KeyHash,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let found = self.device_logins.get(hash);
        let found = found.filter(|it| it.user.as_ref() == Some(&key.user) && it.expires_at > now);
        found
            .filter(|_| self.is_active(&key.user))
            .ok_or(NOT_FOUND)?;
        self.check_key_is_new(key)?;
        self.device_logins.remove(hash);
        self.keys.insert(key.id, key.clone());
        Ok(())
    }
}

#[async_trait]
impl DeviceLoginRepository for MemoryStore {
    async fn begin(&self, login: &DeviceLogin) -> Result<(), StoreError> {
        let mut state = self.lock();
        let all = || state.device_logins.values();
        let waiting = all().filter(|it| it.expires_at > login.created_at).count();
        if waiting >= MAX_DEVICE_LOGINS {
            return Err(StoreError::Full {
                entity: "device logins",
                limit: MAX_DEVICE_LOGINS,
            });
        }
        if all().any(|it| it.code == login.code || it.hash == login.hash) {
            return Err(StoreError::Conflict {
                entity: Entity::DeviceLogin,
            });
        }
        state.device_logins.insert(login.hash, login.clone());
        Ok(())
    }

    async fn find(&self, hash: &KeyHash) -> Result<Option<DeviceLogin>, StoreError> {
        let state = self.lock();
        let found = state.device_logins.get(hash);
        let is_valid = |it: &&DeviceLogin| match &it.user {
            Some(user) => state.is_active(user),
            None => true,
        };
        Ok(found.filter(is_valid).cloned())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.device_logins.values();
        let old = old.filter(|it| it.expires_at < before);
        let old: Vec<KeyHash> = old.map(|it| it.hash).take(limit).collect();
        for hash in &old {
            state.device_logins.remove(hash);
        }
        Ok(old.len() as u64)
    }
}
