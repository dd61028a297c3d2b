//! Metrics that the service counts while it works and that a scrape reads. Counting costs an addition or two and never
//! waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`DurationHistogram`], in milliseconds. All histograms share them, so that they can
/// be compared.
pub const BUCKET_BOUNDS_MS: [u64; 15] = [
    1, 3, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 120_000,
];

/// A counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, times: u64) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }

    /// The count since the process began.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Increases the gauge until the returned guard is dropped.
    pub fn enter(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Decreases its [`Gauge`] when it is dropped.
#[derive(Debug)]
pub struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// One bucket per bound, and one for longer durations.
    buckets: [AtomicU64; BUCKET_BOUNDS_MS.len() + 1],
    micros: AtomicU64,
}

/// The values of a [`DurationHistogram`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    /// Number of durations up to the bound at the same index of [`BUCKET_BOUNDS_MS`]; the last is the total number.
    pub cumulative_counts: [u64; BUCKET_BOUNDS_MS.len() + 1],
    pub sum: Duration,
}

impl DurationHistogram {
    pub fn record(&self, took: Duration) {
        let bucket = BUCKET_BOUNDS_MS
            .iter()
            .position(|ms| took <= Duration::from_millis(*ms));
        let bucket = bucket.unwrap_or(BUCKET_BOUNDS_MS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The values since the process began.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut all = 0;
        let cumulative_counts = std::array::from_fn(|bucket| {
            all += self.buckets[bucket].load(Ordering::Relaxed);
            all
        });
        HistogramSnapshot {
            cumulative_counts,
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

/// The state of a connection pool of the database.
#[derive(Debug, Clone)]
pub struct PoolStats {
    /// `read`, `scan`, `write`, `intake`, `background`.
    pub name: &'static str,
    pub max_connections: u32,
    pub open: u32,
    /// Number of open connections that are not in use.
    pub idle: u32,
    /// Calls that have a slot: they use a connection, or are about to.
    pub in_use: u64,
    /// Calls that wait for a slot.
    pub waiting: u64,
    /// Waiting times of the calls that got a slot.
    pub waits: HistogramSnapshot,
    /// Calls that got no slot in time.
    pub timeouts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let durations = DurationHistogram::default();
        for ms in [0, 1, 4, 30_000, 400_000] {
            durations.record(Duration::from_millis(ms));
        }
        let measured = durations.snapshot();
        assert_eq!(measured.sum, Duration::from_millis(430_005));
        assert_eq!(
            measured.cumulative_counts,
            [2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5]
        );
    }

    #[test]
    fn a_gauge_decreases_when_its_guards_drop() {
        let gauge = Gauge::default();
        let one = gauge.enter();
        let two = gauge.enter();
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(two);
        assert_eq!(gauge.get(), 0);
    }
}
