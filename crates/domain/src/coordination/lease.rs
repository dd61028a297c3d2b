//! Leases between processes that share a store.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::StoreError;

/// Exclusive, named rights with an end, so that the rights of a crashed process expire.
///
/// A lease says which holder *may* act, not which one acts: a holder that was suspended past the end may still be
/// active. So work under a lease must be idempotent, and its writes must be checked against the store (by an expected
/// intent or a fence).
#[async_trait]
pub trait LeaseRepository: Send + Sync + 'static {
    /// Acquires the lease until `until`, or extends it if `holder` has it. `false` if another holder has it at `now`.
    /// Of several concurrent callers, exactly one gets a free lease.
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Ends the lease early if `holder` still has it.
    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError>;
    /// Deletes at most `limit` leases that ended before `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
