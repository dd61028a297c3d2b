//! Serializes operations on a sandbox: a mutex within this process, `flock` between processes.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::{SandboxError, SandboxLock, SandboxLocks};
use tokio::time::{Instant, sleep};

use crate::errors;

/// Backoff while another service holds the file's lock.
const MIN_BACKOFF: Duration = Duration::from_millis(2);
const MAX_BACKOFF: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct SandboxFileLock {
    // Released before the mutex, so that the next operation finds the file unlocked.
    _file: File,
    _lock: SandboxLock,
}

/// Waits for both locks of a sandbox, at most for `limit`.
pub(crate) async fn lock(
    locks: &SandboxLocks,
    id: &SandboxId,
    file: &Path,
    limit: Duration,
) -> Result<SandboxFileLock, SandboxError> {
    let started = Instant::now();
    let lock = locks.lock(id, sleep(limit)).await?;
    let mut backoff = MIN_BACKOFF;
    loop {
        let path = file.to_owned();
        let attempt = errors::blocking(move || try_lock(&path)).await?;
        if let Some(file) = attempt.map_err(SandboxError::other)? {
            return Ok(SandboxFileLock {
                _file: file,
                _lock: lock,
            });
        }
        if started.elapsed() > limit {
            return Err(SandboxLocks::timed_out());
        }
        // Another service uses the same directory, e.g. while one replaces the other.
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
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
