//! Start times of the jobs that run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Start times by number; at most one per slot.
#[derive(Default)]
pub(super) struct RunningJobs {
    next: AtomicU64,
    started: Mutex<BTreeMap<u64, Instant>>,
}

/// Registers a job as running until it is dropped.
pub(super) struct RunningJob(Arc<RunningJobs>, u64);

impl RunningJobs {
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn begin(self: &Arc<Self>) -> RunningJob {
        let number = self.number();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.insert(number, Instant::now());
        RunningJob(Arc::clone(self), number)
    }

    /// Run time of the oldest running job.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.values().map(Instant::elapsed).max()
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let mut started = self
            .0
            .started
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        started.remove(&self.1);
    }
}
