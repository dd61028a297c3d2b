//! Opens the database. [`SqlStore`] implements every repository port.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::error::StoreError;
use secrecy::SecretString;
use tokio::runtime::Handle;

use crate::database::changes::SqlChangeFeed;
use crate::database::connection::{ConnectionManager, InvalidStorageUrl, Target};
use crate::database::migrate::{self, MigrationError};
use crate::database::pool::Db;
use crate::error::unavailable;

/// Timeout of [`SqlStore::ping`].
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// The database and its limits.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `sqlite://PATH` or (feature `postgres`) `postgres://…`, which goes to libpq with all its parameters (`sslmode`, …). Secret, because it may hold a password.
    pub url: SecretString,
    /// Connections for reads of users' requests (and a quarter as many for reads that are scans, and for Postgres as many for
    /// their writes, half as many for what sandboxes report, and half as many for background work).
    pub connections: u32,
    /// Time that a call waits for a slot before it fails with [`StoreError::Unavailable`].
    pub wait: Duration,
    /// Time that a call may take once it has a slot. Longer than Postgres' own timeouts of statements (30 s) and locks (10 s),
    /// because it covers a database that does not respond at all.
    pub deadline: Duration,
}

impl StoreConfig {
    /// A configuration with 4 connections, 5 seconds to wait for a slot and a minute per call.
    pub fn new(url: impl Into<SecretString>) -> Self {
        Self {
            url: url.into(),
            connections: 4,
            wait: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
        }
    }
}

/// Error of [`SqlStore::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not a supported storage URL.
    #[error(transparent)]
    Url(#[from] InvalidStorageUrl),
    /// The file or its directory cannot be created.
    #[error("cannot create the database file {path}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to the database")]
    Connect(#[source] domain::error::BoxError),
    /// A migration failed.
    #[error(transparent)]
    Migrate(#[from] MigrationError),
}

/// Every repository port over one database.
pub struct SqlStore {
    pub(crate) db: Db,
    pub(crate) changes: SqlChangeFeed,
    /// Path of `SQLite`'s write-ahead log.
    pub(crate) log: Option<PathBuf>,
}

impl SqlStore {
    /// Opens the database, creates its file with mode `0600`, runs migrations and builds the pools. All blocking work runs
    /// on `runtime`.
    pub async fn open(config: StoreConfig, runtime: Handle) -> Result<Arc<Self>, OpenError> {
        let at = runtime.clone();
        runtime
            .spawn_blocking(move || open(&config, &at))
            .await
            .map_err(|gone| OpenError::Connect(gone.into()))?
    }

    /// Checks that the database responds. Cheap. `/ready` runs further checks, so the timeout is shorter than that of a
    /// request.
    ///
    /// Also fails while a call runs for longer than its deadline, because each such call occupies a connection for good.
    pub async fn ping(&self) -> Result<(), StoreError> {
        use crate::schema::users::dsl::{id, users};
        if self.db.is_stuck() {
            return Err(unavailable(
                "the database",
                "a call is under way since long before its deadline",
            ));
        }
        let asked = self.db.query(|conn| {
            // Reads from the file, unlike `SELECT 1`.
            users.select(id).first::<String>(conn).optional()?;
            Ok(())
        });
        tokio::time::timeout(PING_TIMEOUT, asked)
            .await
            .unwrap_or_else(|elapsed| Err(unavailable("an answer of the database", elapsed)))
    }

    /// Statistics of the connection pools, for metrics. Cheap.
    pub fn pools(&self) -> Vec<domain::metrics::PoolStats> {
        self.db.stats()
    }

    /// Truncates `SQLite`'s write-ahead log if it is larger than this. `SQLite` itself resets the log only at a moment without
    /// readers, which a busy service may not have. Here writers wait some seconds at most for current readers to end. If
    /// they do not end in time, the next call tries again.
    pub async fn shorten_log(&self, max_bytes: u64) -> Result<(), StoreError> {
        let Some(log) = self.log.clone() else {
            return Ok(());
        };
        self.db
            .query_background(move |conn| {
                let is_short = std::fs::metadata(&log).is_ok_and(|it| it.len() <= max_bytes);
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
    let mut conn = ConnectionManager::new(target.clone())
        .establish()
        .map_err(|error| OpenError::Connect(error.into()))?;
    let ran = migrate::run(&mut conn)?;
    if ran > 0 {
        tracing::info!(migrations = ran, "database schema brought up to date");
    }
    let log = log_of(&target);
    let changes = SqlChangeFeed::of(&target, runtime);
    let db = Db::new(&target, config, runtime);
    Ok(Arc::new(SqlStore { db, changes, log }))
}

/// `SQLite`'s write-ahead log.
pub(crate) fn log_of(target: &Target) -> Option<PathBuf> {
    match target {
        Target::Sqlite(path) => {
            let mut log = path.clone().into_os_string();
            log.push("-wal");
            Some(log.into())
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
    let found = file.metadata()?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 && found.is_file() {
        // The mode of another account's file cannot be changed.
        let narrowed = file.set_permissions(Permissions::from_mode(mode & 0o7700));
        narrowed.or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}
