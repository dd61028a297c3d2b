//! `PendingMessageRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{ConversationId, HostId};
use domain::pending::{PendingMessage, PendingMessageRepository, Queued};
use uuid::Uuid;

use crate::MemoryStore;

#[async_trait]
impl PendingMessageRepository for MemoryStore {
    async fn queue(&self, _: &PendingMessage) -> Result<Queued, StoreError> {
        Ok(Queued::Unknown)
    }

    async fn deliverable(&self, _: &HostId, _: usize) -> Result<Vec<ConversationId>, StoreError> {
        Ok(Vec::new())
    }

    async fn waiting(&self, _: ConversationId) -> Result<Vec<PendingMessage>, StoreError> {
        Ok(Vec::new())
    }

    async fn begin(&self, _: Uuid, _: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn delivered(&self, _: Uuid) -> Result<(), StoreError> {
        Ok(())
    }

    async fn prune(&self, _: Timestamp, _: usize) -> Result<u64, StoreError> {
        Ok(0)
    }
}
