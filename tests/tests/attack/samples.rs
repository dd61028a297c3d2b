//! Measurements of the normal users, and the resources that the service used meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use acceptance::processes::resident_bytes;

/// Maximum number of errors that are kept; the others are only counted.
const MAX_ERRORS: usize = 20;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The responses of one phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Latencies, each with the name of its request.
    latencies_us: Vec<(&'static str, u32)>,
    /// Number of wrong or missing responses.
    pub(crate) error_count: usize,
    /// The first errors.
    pub(crate) errors: Vec<String>,
}

impl Samples {
    pub(crate) fn count(&self) -> usize {
        self.latencies_us.len()
    }

    /// Adds the errors of other samples.
    pub(crate) fn add_errors(&mut self, of: &Self) {
        self.error_count += of.error_count;
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(of.errors.iter().take(room).cloned());
    }

    /// A percentile of the latencies, in milliseconds; 0 without responses.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        self.percentile_of(percent, |_| true)
    }

    fn percentile_of(&self, percent: usize, is_meant: impl Fn(&'static str) -> bool) -> f64 {
        let meant = self.latencies_us.iter().filter(|(name, _)| is_meant(name));
        let mut sorted: Vec<_> = meant.map(|(_, took)| *took).collect();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let at = (sorted.len() * percent / 100).min(last);
        f64::from(sorted.get(at).copied().unwrap_or_default()) / 1_000.0
    }

    /// The 99th percentile of each request, in milliseconds, the slowest first.
    pub(crate) fn slowest(&self) -> String {
        let names: BTreeSet<_> = self.latencies_us.iter().map(|(name, _)| *name).collect();
        let mut slowest: Vec<_> = names
            .into_iter()
            .map(|name| (self.percentile_of(99, |it| it == name), name))
            .collect();
        slowest.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let texts: Vec<_> = slowest
            .iter()
            .map(|(tail, name)| format!("{name} {tail:.1}"))
            .collect();
        texts.join(", ")
    }
}

/// Collects the samples of all normal users for the current phase.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Samples>);

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_response(&self, name: &'static str, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.lock().latencies_us.push((name, took));
    }

    pub(crate) fn record_error(&self, error: String) {
        let mut samples = self.lock();
        samples.error_count += 1;
        if samples.errors.len() < MAX_ERRORS {
            samples.errors.push(error);
        }
    }

    /// Ends a phase and begins the next one.
    pub(crate) fn take(&self) -> Samples {
        std::mem::take(&mut *self.lock())
    }
}

/// The responses to the attackers, by status; 0: the connection was closed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    statuses: Mutex<BTreeMap<u16, u64>>,
    leaks: Mutex<Vec<String>>,
}

impl Tally {
    pub(crate) fn add(&self, status: u16) {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        *statuses.entry(status).or_default() += 1;
    }

    /// Records a response to an attacker that contains a normal user's text.
    pub(crate) fn record_leak(&self, what: String) {
        let mut leaks = self.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        leaks.push(what);
    }

    /// The statuses since the last call.
    pub(crate) fn take(&self) -> BTreeMap<u16, u64> {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *statuses)
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        let leaks = self.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        leaks.clone()
    }
}

/// The resident memory of the service.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    /// 0 while the service is down.
    pid: AtomicU32,
    peak: AtomicU64,
}

impl MemoryWatch {
    pub(crate) fn follow(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// The present resident memory, in bytes.
    pub(crate) fn now(&self) -> u64 {
        resident_bytes(self.pid.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// The largest sample since the last call.
    pub(crate) fn take_peak(&self) -> u64 {
        self.peak.swap(self.now(), Ordering::Relaxed)
    }

    /// Samples until it is dropped.
    pub(crate) async fn sample(&self) {
        loop {
            self.peak.fetch_max(self.now(), Ordering::Relaxed);
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }
}

/// The disk usage of the files below a directory, in bytes.
pub(crate) fn disk_usage(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        // Files may disappear meanwhile.
        let metadata = entry.metadata().ok()?;
        let below = if metadata.is_dir() {
            disk_usage(&entry.path())
        } else {
            0
        };
        Some(metadata.blocks() * 512 + below)
    });
    sizes.sum()
}

#[test]
fn percentiles_are_samples() {
    let recorder = Recorder::default();
    assert!(recorder.take().percentile(99) < f64::EPSILON);
    for ms in (1..=200).rev() {
        recorder.record_response(
            if ms > 100 { "slow" } else { "quick" },
            Duration::from_millis(ms),
        );
    }
    let samples = recorder.take();
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
    assert!(near(samples.percentile(50), 101.0), "{samples:?}");
    assert!(near(samples.percentile(99), 199.0), "{samples:?}");
    assert_eq!(samples.slowest(), "slow 200.0, quick 100.0");
    assert_eq!((samples.count(), recorder.take().count()), (200, 0));
}
