//! `SecretRepository`.

mod vault;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::OwnerId;
use domain::page::{Page, PageRequest};
use domain::user::secret::{
    CustomSecret, MAX_SECRETS_PER_USER, SECRETS_ENTITY, SecretChange, SecretRepository,
    SecretSummary,
};

use crate::page;
use crate::state::{MemoryState, MemoryStore};

const LISTING: &str = "secrets";

impl MemoryState {
    fn insert_secret(&mut self, secret: &CustomSecret) -> Result<(), StoreError> {
        self.check_active_owner(&secret.owner)?;
        let key = (secret.owner.clone(), secret.name.clone());
        if self.secrets.contains_key(&key) {
            return Err(StoreError::Conflict {
                entity: Entity::Secret,
            });
        }
        let owners = self.secrets.keys().map(|(owner, _)| owner);
        if owners.filter(|it| **it == secret.owner).count() >= MAX_SECRETS_PER_USER {
            return Err(StoreError::Full {
                entity: SECRETS_ENTITY,
                limit: MAX_SECRETS_PER_USER,
            });
        }
        self.secrets.insert(key, secret.clone());
        Ok(())
    }

    fn change_secret(
        &mut self,
        owner: &OwnerId,
        name: &str,
        change: &SecretChange,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = (owner.clone(), name.to_owned());
        if !self.secrets.contains_key(&key) {
            return Ok(false);
        }
        let new_key = (owner.clone(), change.name.clone().unwrap_or(key.1.clone()));
        if new_key != key && self.secrets.contains_key(&new_key) {
            return Err(StoreError::Conflict {
                entity: Entity::Secret,
            });
        }
        if let Some(mut secret) = self.secrets.remove(&key) {
            secret.name.clone_from(&new_key.1);
            if let Some(description) = &change.description {
                secret.description.clone_from(description);
            }
            if let Some(hosts) = &change.hosts {
                secret.hosts.clone_from(hosts);
            }
            if let Some(value) = &change.value {
                secret.value.clone_from(value);
            }
            secret.updated_at = at;
            self.secrets.insert(new_key, secret);
        }
        Ok(true)
    }
}

#[async_trait]
impl SecretRepository for MemoryStore {
    async fn find(&self, owner: &OwnerId, name: &str) -> Result<Option<CustomSecret>, StoreError> {
        let key = (owner.clone(), name.to_owned());
        Ok(self.lock().secrets.get(&key).cloned())
    }

    async fn search(
        &self,
        owner: &OwnerId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<SecretSummary>, StoreError> {
        let search_term = name_contains.unwrap_or("").to_ascii_lowercase();
        let state = self.lock();
        let rows = state
            .secrets
            .values()
            .filter(|secret| secret.owner == *owner)
            .filter(|secret| secret.name.to_ascii_lowercase().contains(&search_term))
            .map(|secret| ((0, secret.name.clone()), SecretSummary::from(secret)));
        page::page_by_count(LISTING, page, false, rows)
    }

    async fn all(&self, owner: &OwnerId) -> Result<Vec<SecretSummary>, StoreError> {
        let state = self.lock();
        let mut all: Vec<_> = state
            .secrets
            .values()
            .filter(|secret| secret.owner == *owner)
            .collect();
        // The map is ordered by name, and the sort is stable.
        all.sort_by_key(|secret| secret.created_at);
        Ok(all.into_iter().map(SecretSummary::from).collect())
    }

    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError> {
        self.lock().insert_secret(secret)
    }

    async fn put(&self, secret: &CustomSecret, change: &SecretChange) -> Result<bool, StoreError> {
        let mut state = self.lock();
        state.check_active_owner(&secret.owner)?;
        let at = secret.updated_at;
        if state.change_secret(&secret.owner, &secret.name, change, at)? {
            return Ok(false);
        }
        state.insert_secret(secret).map(|()| true)
    }

    async fn change(
        &self,
        owner: &OwnerId,
        name: &str,
        change: &SecretChange,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.lock().change_secret(owner, name, change, at)
    }

    async fn delete(&self, owner: &OwnerId, name: &str) -> Result<bool, StoreError> {
        let key = (owner.clone(), name.to_owned());
        Ok(self.lock().secrets.remove(&key).is_some())
    }
}
