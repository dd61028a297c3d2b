//! `HostRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::coordination::host::HostRepository;
use domain::error::StoreError;
use domain::id::HostId;

use crate::MemoryStore;

#[async_trait]
impl HostRepository for MemoryStore {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError> {
        Ok(self.lock().hosts.contains(host))
    }

    async fn register(&self, host: &HostId, _: Timestamp) -> Result<(), StoreError> {
        self.lock().hosts.insert(host.clone());
        Ok(())
    }
}
