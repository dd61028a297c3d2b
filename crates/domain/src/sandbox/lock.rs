//! Serializes the operations of a backend on a sandbox, within a process.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use futures::lock::OwnedMutexGuard;

use super::SandboxError;
use crate::id::SandboxId;

/// The locks of a backend's sandboxes. Unused locks take no memory.
#[derive(Debug, Default)]
pub struct SandboxLocks {
    mutexes: Mutex<HashMap<SandboxId, Arc<futures::lock::Mutex<()>>>>,
}

/// Held while an operation changes a sandbox.
pub type SandboxLock = OwnedMutexGuard<()>;

impl SandboxLocks {
    /// Waits for the lock of a sandbox until `time_limit` ends, e.g. a timer.
    ///
    /// # Errors
    /// [`Self::timed_out`] when the time limit ends first.
    pub async fn lock(
        &self,
        id: &SandboxId,
        time_limit: impl Future<Output = ()>,
    ) -> Result<SandboxLock, SandboxError> {
        let locked = self.mutex(id).lock_owned();
        match select(locked, pin!(time_limit)).await {
            Either::Left((lock, _)) => Ok(lock),
            Either::Right(_) => Err(Self::timed_out()),
        }
    }

    /// The error of an operation that did not get its lock in time.
    #[must_use]
    pub const fn timed_out() -> SandboxError {
        SandboxError::TimedOut {
            what: "another operation on this sandbox",
        }
    }

    fn mutex(&self, id: &SandboxId) -> Arc<futures::lock::Mutex<()>> {
        let mut mutexes = self.mutexes.lock().unwrap_or_else(PoisonError::into_inner);
        mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        Arc::clone(mutexes.entry(id.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::{pending, ready};

    use super::*;

    #[test]
    fn one_operation_at_a_time_changes_a_sandbox() {
        let locks = SandboxLocks::default();
        let [one, other] = ["s1", "s2"].map(|id| SandboxId::parse(id).unwrap());
        let lock = locks.lock(&one, pending()).now_or_never().unwrap().unwrap();
        assert!(locks.lock(&one, pending()).now_or_never().is_none());
        assert!(locks.lock(&other, pending()).now_or_never().is_some());
        let error = locks.lock(&one, ready(())).now_or_never().unwrap();
        assert!(matches!(error, Err(SandboxError::TimedOut { .. })));
        drop(lock);
        assert!(locks.lock(&one, pending()).now_or_never().is_some());
        assert_eq!(locks.mutexes.lock().unwrap().len(), 1);
    }
}
