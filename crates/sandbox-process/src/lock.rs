//! Serializes operations on a sandbox: a mutex within this process, `flock` between processes.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::SandboxError;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};

use crate::errors;

const AWAITED_OPERATION: &str = "another operation on this sandbox";

/// The locks of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct ProcessLocks {
    held: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
}

/// Held while a sandbox is changed.
#[derive(Debug)]
pub(crate) struct SandboxLockGuard {
    // Released before the mutex, so that the next operation finds the file unlocked.
    _file: File,
    _mutex: OwnedMutexGuard<()>,
}

impl ProcessLocks {
    pub(crate) async fn lock(
        &self,
        id: &SandboxId,
        file: &Path,
        limit: Duration,
    ) -> Result<SandboxLockGuard, SandboxError> {
        let started = Instant::now();
        let mutex = self.mutex(id);
        let guard =
            timeout(limit, mutex.lock_owned())
                .await
                .map_err(|_| SandboxError::TimedOut {
                    what: AWAITED_OPERATION,
                })?;
        let mut pause = Duration::from_millis(2);
        loop {
            let path = file.to_owned();
            let attempt = errors::blocking(move || try_lock(&path)).await?;
            if let Some(file) = attempt.map_err(errors::other)? {
                return Ok(SandboxLockGuard {
                    _file: file,
                    _mutex: guard,
                });
            }
            if started.elapsed() > limit {
                return Err(SandboxError::TimedOut {
                    what: AWAITED_OPERATION,
                });
            }
            // Another service uses the same directory, e.g. while one replaces the other.
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn mutex(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        Arc::clone(held.entry(id.clone()).or_default())
    }
}

/// `None` when another process holds the lock.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    match file.try_lock() {
        // A remover deletes the file while it holds the lock; then this lock is on a deleted file.
        Ok(()) if file.metadata()?.nlink() == 0 => Ok(None),
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
