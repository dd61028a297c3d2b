//! Taking turns between processes that share a store.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;

/// Exclusive rights by name, each with an end: what a crashed process held frees itself.
///
/// A lease says who *may* act, not who acts: a holder that was suspended past the end may still be at work. So whatever is
/// done under one must be idempotent, and what it writes must be checked against what is stored (an expected intent, a
/// fence).
#[async_trait]
pub trait LeaseRepository: Send + Sync + 'static {
    /// Takes the lease until `until`, or prolongs it if `holder` has it. `false` if somebody else has it at `now`. Exactly
    /// one of several concurrent callers gets a free one.
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Ends it early, if `holder` still has it.
    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError>;
    /// Deletes leases that ended before, at most `limit`; how many there were.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
