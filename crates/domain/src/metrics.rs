//! Numbers that are counted while the service works, and read when somebody asks (metrics). Counting costs an addition or
//! two, and never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the classes of [`DurationHistogram`], in milliseconds. One set for everything, so that all can be compared.
pub const BUCKET_BOUNDS_MS: [u64; 15] = [
    1, 3, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 120_000,
];

/// How often something happened.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// It happened.
    pub fn add(&self, times: u64) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }

    /// Since the process began.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more, until what is returned is dropped.
    pub fn enter(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    /// So many, whatever was known before.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of a [`Gauge`].
#[derive(Debug)]
pub struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long something took, by classes.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// One per bound, and one for what took longer.
    classes: [AtomicU64; BUCKET_BOUNDS_MS.len() + 1],
    micros: AtomicU64,
}

/// What [`DurationHistogram`] held at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    /// How often it took at most as long as the bound at the same place of [`BUCKET_BOUNDS_MS`]; the last: how often it happened.
    pub cumulative_counts: [u64; BUCKET_BOUNDS_MS.len() + 1],
    /// All together.
    pub sum: Duration,
}

impl DurationHistogram {
    /// It took so long.
    pub fn record(&self, took: Duration) {
        let class = BUCKET_BOUNDS_MS
            .iter()
            .position(|ms| took <= Duration::from_millis(*ms));
        let class = class.unwrap_or(BUCKET_BOUNDS_MS.len());
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Since the process began.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut all = 0;
        let cumulative_counts = std::array::from_fn(|class| {
            all += self.classes[class].load(Ordering::Relaxed);
            all
        });
        HistogramSnapshot {
            cumulative_counts,
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

/// A pool of connections to the database.
#[derive(Debug, Clone)]
pub struct PoolStats {
    /// `read`, `scan`, `write`, `intake`, `background`.
    pub name: &'static str,
    /// Connections that it may have.
    pub max_connections: u32,
    /// Connections that it has.
    pub open: u32,
    /// Those of them that nobody uses.
    pub idle: u32,
    /// Calls that have a turn: they use a connection, or are about to.
    pub in_use: u64,
    /// Calls that wait for a turn.
    pub waiting: u64,
    /// How long calls have waited for a turn that they got.
    pub waits: HistogramSnapshot,
    /// Calls that got none in time.
    pub timeouts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_every_class_that_it_is_not_longer_than() {
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
    fn a_level_falls_when_what_entered_leaves() {
        let level = Gauge::default();
        let one = level.enter();
        let two = level.enter();
        drop(one);
        assert_eq!(level.get(), 1);
        drop(two);
        assert_eq!(level.get(), 0);
    }
}
