//! `WarmRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{HostId, SandboxId, SpecId};
use domain::sandbox::{Located, WarmRepository, WarmSandbox};

use crate::SqlStore;

#[async_trait]
impl WarmRepository for SqlStore {
    async fn insert(&self, _warm: &WarmSandbox, _most: u32) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn ready(
        &self,
        _id: &SandboxId,
        _located: &Located,
        _at: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn claim(
        &self,
        _host: &HostId,
        _spec: &SpecId,
        _recipe: &str,
        _at: Timestamp,
    ) -> Result<Option<WarmSandbox>, StoreError> {
        Ok(None)
    }

    async fn release(&self, _id: &SandboxId, _at: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn on_host(&self, _host: &HostId) -> Result<Vec<WarmSandbox>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _id: &SandboxId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dismiss(&self, _id: &SandboxId) -> Result<bool, StoreError> {
        Ok(false)
    }
}
