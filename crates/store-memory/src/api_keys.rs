//! `ApiKeyRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{ApiKeyId, UserId};
use domain::identity::{ApiKey, ApiKeyRepository, DELETED_USER, KeyHash, NAME_RESTS, User};

use crate::MemoryStore;

#[async_trait]
impl ApiKeyRepository for MemoryStore {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let mut state = self.lock();
        let taken = |it: &ApiKey| it.id == key.id || it.hash == key.hash;
        if state.keys.values().any(taken) {
            return Err(StoreError::Conflict { entity: "API key" });
        }
        let deleted_at = state.users.get(&key.user).and_then(|it| it.deleted_at);
        if let Some(deleted_at) = deleted_at {
            if deleted_at.plus(NAME_RESTS) > key.created_at || !state.is_gone(&key.user) {
                return Err(StoreError::Conflict {
                    entity: DELETED_USER,
                });
            }
            state.users.remove(&key.user);
        }
        state.users.entry(key.user.clone()).or_insert_with(|| User {
            id: key.user.clone(),
            created_at: key.created_at,
            deleted_at: None,
        });
        state.keys.insert(key.id, key.clone());
        Ok(())
    }

    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let state = self.lock();
        Ok(state.keys.values().find(|it| it.hash == *hash).cloned())
    }

    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError> {
        let state = self.lock();
        let mut found: Vec<ApiKey> = state
            .keys
            .values()
            .filter(|it| user.is_none_or(|user| it.user == *user))
            .cloned()
            .collect();
        found.sort_by_key(|it| (it.created_at, it.id));
        Ok(found)
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
}
