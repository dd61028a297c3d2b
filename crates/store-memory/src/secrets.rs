//! `SecretRepository`.

use async_trait::async_trait;
use domain::error::StoreError;
use domain::id::UserId;
use domain::page::{Page, PageRequest};
use domain::secret::{CustomSecret, MOST_SECRETS, SecretRepository};

use crate::state::MemoryStore;

#[async_trait]
impl SecretRepository for MemoryStore {
    async fn find(&self, owner: &UserId, name: &str) -> Result<Option<CustomSecret>, StoreError> {
        let key = (owner.clone(), name.to_owned());
        Ok(self.lock().secrets.get(&key).cloned())
    }

    async fn search(
        &self,
        owner: &UserId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<CustomSecret>, StoreError> {
        let _ = (owner, name_contains, page);
        Ok(Page {
            items: Vec::new(),
            next: None,
        })
    }

    async fn all(&self, owner: &UserId) -> Result<Vec<CustomSecret>, StoreError> {
        let state = self.lock();
        let mut all: Vec<_> = state
            .secrets
            .values()
            .filter(|secret| secret.owner == *owner)
            .cloned()
            .collect();
        all.sort_by_key(|secret| (secret.created_at, secret.id));
        Ok(all)
    }

    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError> {
        let mut state = self.lock();
        let key = (secret.owner.clone(), secret.name.clone());
        if state.secrets.contains_key(&key) {
            return Err(StoreError::Conflict { entity: "secret" });
        }
        if state
            .secrets
            .keys()
            .filter(|(owner, _)| *owner == secret.owner)
            .count()
            >= MOST_SECRETS
        {
            return Err(StoreError::Full {
                entity: "secrets",
                most: MOST_SECRETS,
            });
        }
        state.secrets.insert(key, secret.clone());
        Ok(())
    }

    async fn update(&self, before: &CustomSecret, after: &CustomSecret) -> Result<(), StoreError> {
        let _ = (before, after);
        Err(StoreError::NotFound { entity: "secret" })
    }

    async fn delete(&self, owner: &UserId, name: &str) -> Result<bool, StoreError> {
        let key = (owner.clone(), name.to_owned());
        Ok(self.lock().secrets.remove(&key).is_some())
    }
}
