//! The pool of warm sandboxes on the wire. Ours: the reference keeps none.

use application::WarmCounts;
use serde::Serialize;
use utoipa::ToSchema;

/// The pool of warm sandboxes of one process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WarmPool)]
pub struct WarmPoolDto {
    /// How many there should be now; 0 where none are kept.
    target: u32,
    /// Ready to be given to a start.
    ready: u32,
    /// Being booted.
    booting: u32,
    /// Promised to starts that are being stored.
    claimed: u32,
    /// Starts that got one, since the process began.
    hits: u64,
    /// Starts of the same template that found none.
    misses: u64,
    /// Boots that failed.
    failed_boots: u64,
    /// Ones that were ended unused: stale, unhealthy or too many.
    ended: u64,
}

impl From<WarmCounts> for WarmPoolDto {
    fn from(counts: WarmCounts) -> Self {
        Self {
            target: counts.target,
            ready: counts.ready,
            booting: counts.booting,
            claimed: counts.claimed,
            hits: counts.hits,
            misses: counts.misses,
            failed_boots: counts.failed_boots,
            ended: counts.ended,
        }
    }
}
