//! The jobs that run now, and since when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When the jobs that are under way began: no more than there are slots.
#[derive(Default)]
pub(super) struct RunningJobs {
    next: AtomicU64,
    begun: Mutex<BTreeMap<u64, Instant>>,
}

/// One of them; it is over when this is dropped.
pub(super) struct RunningJob(Arc<RunningJobs>, u64);

impl RunningJobs {
    /// One that no other job has.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn begin(self: &Arc<Self>) -> RunningJob {
        let number = self.number();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.insert(number, Instant::now());
        RunningJob(Arc::clone(self), number)
    }

    /// For how long the oldest one has been under way.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.values().map(Instant::elapsed).max()
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let mut begun = self.0.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.remove(&self.1);
    }
}
