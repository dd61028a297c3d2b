//! Free space on the disks of the database and the data directory.
//!
//! A full disk must not stop the service. While less than `storage.min_free` is left, `/ready` fails and the service
//! refuses new data, so that the rest serves deletions, pauses and work in progress. Sandboxes and other programs may
//! use up that space too. The service then removes a reserve file, because a deletion also needs space (`SQLite` first
//! writes to its write-ahead log), as does a start (the log's index).
//!
//! ```text
//!   free        ≥ min_free + reserve       < min_free               < reserve
//!               normal operation           new data is refused      … and the reserve is released
//!               reserve is created         /ready answers 503
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use application::BackgroundTasks;
use domain::error::chain;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use crate::compose::adapters::Store;
use crate::config::Config;

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Reserved for deletions on a full disk: some thousand rows, or a start.
const RESERVE_BYTES: u64 = 16 << 20;
/// Size from which `SQLite`'s write-ahead log is truncated.
const MAX_LOG_BYTES: u64 = 64 << 20;

/// The state of the disks; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct DiskSpace(Arc<Disks>);

#[derive(Debug)]
struct Disks {
    data_dir: PathBuf,
    /// The directory of the database, if it is a file.
    database: Option<PathBuf>,
    min_free: u64,
    is_low: AtomicBool,
}

impl DiskSpace {
    /// Checks for the first time, and releases the reserve if a start needs it. Blocks for a moment.
    pub(crate) fn new(config: &Config) -> Self {
        let database = config.storage.file();
        let database = database.map(|file| match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        });
        let space = Self(Arc::new(Disks {
            data_dir: config.data_dir.clone(),
            database,
            min_free: config.storage.min_free,
            is_low: AtomicBool::new(false),
        }));
        space.0.check();
        space
    }

    /// Checks regularly until the service stops, and truncates `SQLite`'s write-ahead log.
    pub(crate) fn spawn(&self, store: &Arc<Store>, tasks: &BackgroundTasks) {
        let (space, store) = (self.clone(), Arc::clone(store));
        tasks.spawn(async move {
            let mut tick = tokio::time::interval(CHECK_INTERVAL);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let disks = Arc::clone(&space.0);
                let _ = Handle::current()
                    .spawn_blocking(move || disks.check())
                    .await;
                if let Err(error) = store.shorten_log(MAX_LOG_BYTES).await {
                    tracing::debug!(error = %chain(&error), "cannot shorten the database's log");
                }
            }
        });
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.is_low.load(Ordering::Relaxed).then(|| {
            "The disk of this service is nearly full, so nothing new is stored: delete conversations, or ask the operator to free \
             disk space"
                .to_owned()
        })
    }

    pub(crate) async fn problem(&self) -> Option<String> {
        let disks = Arc::clone(&self.0);
        let check = Handle::current().spawn_blocking(move || disks.problem());
        check.await.unwrap_or_default()
    }
}

impl Disks {
    fn check(&self) {
        let Some(directory) = self.database.as_deref().filter(|_| self.min_free > 0) else {
            return;
        };
        let Ok(free) = free_bytes(directory) else {
            return;
        };
        let is_low = free < self.min_free;
        if self.is_low.swap(is_low, Ordering::Relaxed) != is_low {
            let (free_mib, path) = (free >> 20, directory.display());
            let min_mib = self.min_free >> 20;
            if is_low {
                tracing::error!(%path, free_mib, "{path} has {free_mib} MiB free, less than storage.min_free ({min_mib} MiB): new data is refused until space is freed");
            } else {
                tracing::info!(%path, free_mib, "{path} has storage.min_free ({min_mib} MiB) again: new data is accepted");
            }
        }
        let reserve = directory.join(".agent-workspace.reserve");
        if free < RESERVE_BYTES {
            release_reserve(&reserve);
        } else if free >= self.min_free.saturating_add(RESERVE_BYTES)
            && let Err(error) = create_reserve(&reserve)
        {
            tracing::debug!(error = %chain(&error), "cannot create the reserve for a full disk");
        }
    }

    fn problem(&self) -> Option<String> {
        let directories = self.database.iter().chain([&self.data_dir]);
        let mut directories = directories.filter(|_| self.min_free > 0);
        directories.find_map(|directory| {
            let free = free_bytes(directory).ok()?;
            (free < self.min_free).then(|| {
                format!(
                    "{} has {} MiB left, less than storage.min_free ({} MiB): make room",
                    directory.display(),
                    free >> 20,
                    self.min_free >> 20
                )
            })
        })
    }
}

fn free_bytes(directory: &Path) -> rustix::io::Result<u64> {
    let stat = statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Creates the reserve unless it exists. Some file systems cannot reserve space; then there is no reserve.
fn create_reserve(reserve: &Path) -> io::Result<()> {
    if fs::metadata(reserve).is_ok_and(|metadata| metadata.len() == RESERVE_BYTES) {
        return Ok(());
    }
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let allocated = fallocate(
        file.open(reserve)?,
        FallocateFlags::empty(),
        0,
        RESERVE_BYTES,
    );
    allocated.or_else(|error| {
        fs::remove_file(reserve)?;
        match error {
            Errno::OPNOTSUPP => Ok(()),
            error => Err(error.into()),
        }
    })
}

fn release_reserve(reserve: &Path) {
    match fs::remove_file(reserve) {
        Ok(()) => tracing::error!(
            path = %reserve.display(),
            "the disk is full: removed the reserve so that deletions have space; free space on this disk"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(error = %chain(&error), "cannot remove the reserve {}: delete it to free 16 MiB", reserve.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(directory: &Path, min_free: u64) -> Disks {
        Disks {
            data_dir: directory.to_owned(),
            database: Some(directory.to_owned()),
            min_free,
            is_low: AtomicBool::new(false),
        }
    }

    #[test]
    fn a_full_disk_is_a_problem_and_another_one_gets_a_reserve() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = directory.path().join(".agent-workspace.reserve");
        let roomy = disks(directory.path(), 1);
        roomy.check();
        assert_eq!(roomy.problem(), None);
        assert!(!roomy.is_low.into_inner());
        assert_eq!(fs::metadata(&reserve).unwrap().len(), RESERVE_BYTES);

        let full = disks(directory.path(), u64::MAX);
        full.check();
        let problem = full.problem().unwrap();
        let path = directory.path().display().to_string();
        assert!(problem.starts_with(&path), "{problem}");
        assert!(full.is_low.into_inner());
        assert!(reserve.exists(), "there is still room for deletions");
        release_reserve(&reserve);
        release_reserve(&reserve);
        assert!(!reserve.exists());
    }

    #[test]
    fn a_threshold_of_zero_disables_the_checks() {
        let directory = tempfile::tempdir().unwrap();
        let disabled = disks(directory.path(), 0);
        disabled.check();
        assert_eq!(
            (disabled.problem(), disabled.is_low.into_inner()),
            (None, false)
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
