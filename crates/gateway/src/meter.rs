//! Counters of requests, tunnels and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ForwardError;
use crate::limits::TrafficKind;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct GatewayMetrics {
    requests_open: AtomicU64,
    tunnels_open: AtomicU64,
    answered: AtomicU64,
    upgraded: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
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
    /// Takes a snapshot.
    pub fn counts(&self) -> GatewayCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GatewayCounts {
            requests_open: load(&self.requests_open),
            tunnels_open: load(&self.tunnels_open),
            answered: load(&self.answered),
            upgraded: load(&self.upgraded),
            refused: load(&self.refused),
            failed: load(&self.failed),
            bytes_up: load(&self.bytes_up),
            bytes_down: load(&self.bytes_down),
        }
    }

    pub(crate) fn record_opened(&self, kind: TrafficKind) {
        self.open(kind).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_closed(&self, kind: TrafficKind) {
        self.open(kind).fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn record_answered(&self, kind: TrafficKind) {
        let total = match kind {
            TrafficKind::Request => &self.answered,
            TrafficKind::Tunnel => &self.upgraded,
        };
        total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_failure(&self, failure: &ForwardError) {
        let total = match failure.status() {
            502 | 504 => &self.failed,
            _ => &self.refused,
        };
        total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes_up(&self, bytes: usize) {
        self.bytes_up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes_down(&self, bytes: usize) {
        self.bytes_down.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn open(&self, kind: TrafficKind) -> &AtomicU64 {
        match kind {
            TrafficKind::Request => &self.requests_open,
            TrafficKind::Tunnel => &self.tunnels_open,
        }
    }
}
