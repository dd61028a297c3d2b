//! The hosts that a store has served.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::HostId;

/// The hosts that this store serves. The reconciler removes the sandboxes of a host that have no row, but only on a
/// host that is registered: a service that starts on another or an empty store must not remove sandboxes.
#[async_trait]
pub trait HostRepository: Send + Sync + 'static {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError>;
    /// Registers the host. Idempotent.
    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError>;
}
