//! `SecretRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::UserId;
use domain::page::{Page, PageRequest};
use domain::secret::{CustomSecret, SecretChange, SecretRepository};

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
    async fn put(&self, _: &CustomSecret, _: &SecretChange) -> Result<bool, StoreError> {
        not_yet()
    }
    async fn change(
        &self,
        _: &UserId,
        _: &str,
        _: &SecretChange,
        _: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn delete(&self, _: &UserId, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}
