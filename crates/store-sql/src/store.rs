//! Opens the database. [`SqlStore`] implements every repository port.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::coordination::change::{ChangeFeed, StoreChange};
use domain::error::StoreError;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

use crate::database::changes::SqlChangeFeed;
pub use crate::database::config::StoreConfig;
use crate::database::connection::{AnyConnection, ConnectionManager, InvalidStorageUrl, Target};
use crate::database::migrate::{self, MigrationError};
use crate::database::pool::Database;
use crate::database::pool::{JobMode, Workload};
use crate::error::{TransactionError, unavailable};

const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// Error of [`SqlStore::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The storage URL is invalid or not supported.
    #[error(transparent)]
    Url(#[from] InvalidStorageUrl),
    /// The file or its directory cannot be created or opened.
    #[error(
        "cannot create or open the database file {path}; check `storage.url` and the permissions of its directory"
    )]
    File {
        /// Path of the file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to the database; check that it runs and that `storage.url` is right")]
    Connect(#[source] domain::error::BoxError),
    /// A migration failed.
    #[error(transparent)]
    Migrate(#[from] MigrationError),
}

/// Every repository port over one database.
pub struct SqlStore {
    pub(crate) db: Database,
    pub(crate) changes: SqlChangeFeed,
    pub(crate) wal_path: Option<PathBuf>,
}

impl ChangeFeed for SqlStore {
    fn changes(&self) -> BoxStream<'static, StoreChange> {
        self.changes.subscribe()
    }
}

impl SqlStore {
    /// Opens the database, creates its file with mode `0600`, runs migrations and builds the pools. All blocking work runs
    /// on `runtime`.
    pub async fn open(config: StoreConfig, runtime: Handle) -> Result<Arc<Self>, OpenError> {
        let handle = runtime.clone();
        runtime
            .spawn_blocking(move || open(&config, &handle))
            .await
            .map_err(|error| OpenError::Connect(error.into()))?
    }

    /// Runs a job of this workload, without a tenant.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        workload: Workload,
        mode: JobMode,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.db.for_workload(workload).run(mode, job).await
    }

    /// Checks that the database responds. Cheap. `/ready` runs further checks, so the timeout is shorter than that of a
    /// request.
    ///
    /// Also fails while a call has been running for longer than its deadline, because each such call occupies a connection.
    pub async fn ping(&self) -> Result<(), StoreError> {
        use crate::schema::users::dsl::{id, users};
        if self.db.is_stuck() {
            return Err(unavailable(
                "database",
                "a call has been running for longer than its deadline",
            ));
        }
        let query = self.run(Workload::Requests, JobMode::Query, |conn| {
            // Reads from the file, unlike `SELECT 1`.
            users.select(id).first::<String>(conn).optional()?;
            Ok(())
        });
        tokio::time::timeout(PING_TIMEOUT, query)
            .await
            .unwrap_or_else(|elapsed| {
                Err(unavailable("the database did not respond in time", elapsed))
            })
    }

    /// Statistics of the connection pools, for metrics. Cheap.
    pub fn pools(&self) -> Vec<domain::metrics::PoolStats> {
        self.db.stats()
    }

    /// Truncates `SQLite`'s write-ahead log if it is larger than `max_bytes`. `SQLite` itself resets the log only at a moment
    /// without readers, which a busy service may not have. Here writers wait for current readers, for some seconds at most. If
    /// the readers do not end in time, the next call tries again.
    pub async fn shorten_log(&self, max_bytes: u64) -> Result<(), StoreError> {
        let Some(wal_path) = self.wal_path.clone() else {
            return Ok(());
        };
        self.run(Workload::Background, JobMode::Query, move |conn| {
            let is_short = std::fs::metadata(&wal_path).is_ok_and(|wal| wal.len() <= max_bytes);
            if !is_short {
                conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)")?;
            }
            Ok(())
        })
        .await
    }

    /// Longest time from the start of a write call to its commit.
    pub fn max_write_duration(&self) -> Duration {
        self.db.max_write_duration()
    }
}

fn open(config: &StoreConfig, runtime: &Handle) -> Result<Arc<SqlStore>, OpenError> {
    let target = Target::parse(&config.url)?;
    match &target {
        Target::Sqlite(path) => create_private(path).map_err(|source| OpenError::File {
            path: path.display().to_string(),
            source,
        })?,
        #[cfg(feature = "postgres")]
        Target::Postgres(_) => {}
    }
    let mut conn = ConnectionManager(target.clone())
        .establish()
        .map_err(|error| OpenError::Connect(error.into()))?;
    let ran = migrate::run(&mut conn)?;
    if ran > 0 {
        tracing::info!(migrations = ran, "database schema migrated");
    }
    Ok(Arc::new(SqlStore {
        changes: SqlChangeFeed::start(&target, runtime),
        db: Database::new(&target, config, runtime),
        wal_path: wal_path_of(&target),
    }))
}

fn wal_path_of(target: &Target) -> Option<PathBuf> {
    match target {
        Target::Sqlite(path) => {
            let mut wal_path = path.clone().into_os_string();
            wal_path.push("-wal");
            Some(wal_path.into())
        }
        #[cfg(feature = "postgres")]
        Target::Postgres(_) => None,
    }
}

/// Creates the file with mode `0600` before `SQLite` creates it with the umask's mode. Also restricts a file that an earlier
/// release left readable. `SQLite` gives `-wal` and `-shm` the mode of the file.
fn create_private(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 && metadata.is_file() {
        // Changing the mode of another account's file is denied.
        let restricted = file.set_permissions(Permissions::from_mode(mode & 0o7700));
        restricted.or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}
