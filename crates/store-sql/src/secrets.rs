//! `SecretRepository`.

use async_trait::async_trait;
use domain::error::StoreError;
use domain::id::UserId;
use domain::page::{Page, PageRequest};
use domain::secret::{CustomSecret, SecretRepository};

use crate::store::SqlStore;

fn not_yet<T>() -> Result<T, StoreError> {
    Err(StoreError::NotFound { entity: "secret" })
}

#[async_trait]
impl SecretRepository for SqlStore {
    async fn find(&self, _: &UserId, _: &str) -> Result<Option<CustomSecret>, StoreError> {
        Ok(None)
    }
    async fn search(
        &self,
        _: &UserId,
        _: Option<&str>,
        _: &PageRequest,
    ) -> Result<Page<CustomSecret>, StoreError> {
        not_yet()
    }
    async fn all(&self, _: &UserId) -> Result<Vec<CustomSecret>, StoreError> {
        Ok(Vec::new())
    }
    async fn insert(&self, _: &CustomSecret) -> Result<(), StoreError> {
        not_yet()
    }
    async fn update(&self, _: &CustomSecret, _: &CustomSecret) -> Result<(), StoreError> {
        not_yet()
    }
    async fn delete(&self, _: &UserId, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}
