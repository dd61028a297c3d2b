//! The hosts of sandboxes that share a store.

use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::HostId;
use crate::wire_enum::wire_enum;

/// Time after its last sign of life from which a host counts as lost. Longer than a restart of the service, and than the
/// clocks of machines differ.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(30);

wire_enum! {
    /// Whether a host takes new starts.
    HostStatus {
        Available = "available",
        /// An administrator said that it takes none.
        Draining = "draining",
        /// No process has served it for [`HOST_TIMEOUT`].
        Lost = "lost",
        /// Only an earlier release has served it.
        Unknown = "unknown",
    }
}

/// A host of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub id: HostId,
    pub registered_at: Timestamp,
    /// The last sign of life of a process that serves it. `None`: only earlier releases did.
    pub seen_at: Option<Timestamp>,
    /// Whether it takes no new starts.
    pub is_draining: bool,
    /// Sandboxes that run or start on it.
    pub sandboxes: u64,
    /// Its starts that have not ended.
    pub open_starts: u64,
}

impl Host {
    pub fn status(&self, now: Timestamp) -> HostStatus {
        match self.seen_at {
            Some(seen_at) if now.since(seen_at) > HOST_TIMEOUT => HostStatus::Lost,
            _ if self.is_draining => HostStatus::Draining,
            Some(_) => HostStatus::Available,
            None => HostStatus::Unknown,
        }
    }
}

/// The hosts that this store serves. The reconciler removes the sandboxes of a host that have no row, but only on a
/// host that is registered: a service that starts on another or an empty store must not remove sandboxes.
#[async_trait]
pub trait HostRepository: Send + Sync + 'static {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError>;
    /// Registers the host, which is also its first sign of life. Idempotent.
    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError>;
    /// Stores a sign of life of a registered host; without effect on others. Its sandboxes that
    /// [`mark_lost`](Self::mark_lost) changed are RUNNING again, unless their owners have changed them meanwhile. Returns
    /// their number.
    async fn note_alive(&self, host: &HostId, at: Timestamp) -> Result<u64, StoreError>;
    /// All hosts, by id.
    async fn list(&self) -> Result<Vec<Host>, StoreError>;
    /// Sets whether the host takes no new starts. `false` if it is not registered.
    async fn set_draining(&self, host: &HostId, is_draining: bool) -> Result<bool, StoreError>;
    /// Moves up to `limit` starts of a lost host to another one, oldest first, each with its sandbox, which is STARTING
    /// again. Only starts move that made their sandbox, have no valid lease at `now` and have stored no conversation:
    /// nothing that a user did is in their sandbox. Former leases are refused from then on. Of several concurrent
    /// callers, one gets a start. Without effect if the host has given a sign of life since it was listed. Returns the
    /// number of starts.
    async fn adopt_starts(
        &self,
        lost: &Host,
        to: &HostId,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError>;
    /// Shows the RUNNING sandboxes of a lost host as MISSING with this detail. Without effect if the host has given a sign
    /// of life since it was listed. Returns their number.
    async fn mark_lost(&self, lost: &Host, detail: &str) -> Result<u64, StoreError>;
    /// Removes a lost host that does not return, with its sandboxes. Its unfinished starts belong to `heir`, which fails
    /// those whose sandbox is gone. `false`, and without effect, if the host has given a sign of life since it was listed.
    async fn remove(&self, lost: &Host, heir: &HostId) -> Result<bool, StoreError>;
}
