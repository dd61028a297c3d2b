//! Counters of requests, tunnels and bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ForwardError;
use crate::limits::{ForwardSlots, TrafficKind};

/// The counters of this process.
#[derive(Debug)]
pub struct GatewayMetrics {
    slots: Arc<ForwardSlots>,
    totals: Mutex<GatewayCounts>,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GatewayCounts {
    /// Requests in progress: a gauge.
    pub requests_open: u64,
    /// Open tunnels: a gauge.
    pub tunnels_open: u64,
    /// Requests that the upstream answered, with any status.
    pub answered: u64,
    /// Requests that became tunnels.
    pub upgraded: u64,
    /// Requests that the gateway refused: 4xx, or a limit.
    pub refused: u64,
    /// Requests that the upstream did not answer: 502, 504.
    pub failed: u64,
    /// Bytes of bodies and tunnels sent to upstreams.
    pub bytes_up: u64,
    /// Bytes of bodies and tunnels sent to clients.
    pub bytes_down: u64,
}

impl GatewayMetrics {
    pub(crate) fn new(slots: Arc<ForwardSlots>) -> Self {
        Self {
            slots,
            totals: Mutex::default(),
        }
    }

    /// Takes a snapshot.
    pub fn counts(&self) -> GatewayCounts {
        GatewayCounts {
            requests_open: self.slots.in_use(TrafficKind::Request),
            tunnels_open: self.slots.in_use(TrafficKind::Tunnel),
            ..*self.totals()
        }
    }

    pub(crate) fn record_answered(&self, kind: TrafficKind) {
        match kind {
            TrafficKind::Request => self.totals().answered += 1,
            TrafficKind::Tunnel => self.totals().upgraded += 1,
        }
    }

    pub(crate) fn record_failure(&self, failure: &ForwardError) {
        match failure.status() {
            502 | 504 => self.totals().failed += 1,
            _ => self.totals().refused += 1,
        }
    }

    pub(crate) fn add_bytes_up(&self, bytes: usize) {
        self.totals().bytes_up += bytes as u64;
    }

    pub(crate) fn add_bytes_down(&self, bytes: usize) {
        self.totals().bytes_down += bytes as u64;
    }

    fn totals(&self) -> MutexGuard<'_, GatewayCounts> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
