//! The warm pool on the wire. An addition: the reference has none.

use application::WarmCounts;

use crate::decode::model;

/// The warm pool of one process.
#[model(response = WarmPool, from(counts: WarmCounts))]
pub(crate) struct WarmPoolDto {
    /// Target number of warm sandboxes; 0 if there is no pool.
    target: u32,
    /// Sandboxes that a start can claim.
    ready: u32,
    /// Sandboxes that are booting.
    booting: u32,
    /// Sandboxes claimed by starts that are being stored.
    claimed: u32,
    /// Starts that claimed a sandbox since the process started.
    hits: u64,
    /// Starts with the same sandbox spec that found none.
    misses: u64,
    /// Boots that failed.
    failed_boots: u64,
    /// Sandboxes that were deleted unused: stale, unhealthy or surplus.
    ended: u64,
}
