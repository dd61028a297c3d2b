//! Which sandbox hosts a store has served.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::HostId;

/// The hosts that are at home in this store. What a host runs and no row owns is removed as an orphan; but only if the
/// store is the one that the host's sandboxes were made with. A service that is pointed at another or an emptied store
/// must not take every sandbox for an orphan.
#[async_trait]
pub trait HostRepository: Send + Sync + 'static {
    /// Whether the host was registered before.
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError>;
    /// Registers it. Idempotent.
    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError>;
}
