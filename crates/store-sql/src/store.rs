//! Opening the database; one struct that implements every repository port.

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
use crate::database::connection::{InvalidStorageUrl, Manager, Target};
use crate::error::unavailable;
use crate::database::migrate::{self, MigrationError};
use crate::database::pool::Db;

/// How long [`SqlStore::ping`] waits.
const PING: Duration = Duration::from_secs(1);

/// What to open and how much of it to use.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `sqlite://PATH` or (feature `postgres`) `postgres://…`, which goes to libpq with all its parameters (`sslmode`, …). Secret, because it may hold a password.
    pub url: SecretString,
    /// Connections for reads of users' requests (and a quarter as many for reads that are scans, and for Postgres as many for
    /// their writes, half as many for what sandboxes report, and half as many for background work).
    pub connections: u32,
    /// How long a call waits for its turn before it is [`StoreError::Unavailable`].
    pub wait: Duration,
    /// How long a call may take once it is its turn. Longer than the time after which Postgres itself ends a statement (30 s)
    /// or a wait for a lock (10 s): it is for a database that says nothing at all any more.
    pub deadline: Duration,
}

impl StoreConfig {
    /// This database, with 4 connections, 5 seconds to wait and a minute to work.
    pub fn new(url: impl Into<SecretString>) -> Self {
        Self {
            url: url.into(),
            connections: 4,
            wait: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
        }
    }
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names nothing we can open.
    #[error(transparent)]
    Url(#[from] InvalidStorageUrl),
    /// The file (or its directory) cannot be made.
    #[error("cannot create the database file {path}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No connection.
    #[error("cannot connect to the database")]
    Connect(#[source] domain::error::BoxError),
    /// The schema could not be brought up to date.
    #[error(transparent)]
    Migrate(#[from] MigrationError),
}

/// Every repository port, on one database.
pub struct SqlStore {
    pub(crate) db: Db,
    pub(crate) changes: SqlChangeFeed,
    /// `SQLite`'s write-ahead log.
    pub(crate) log: Option<PathBuf>,
}

impl SqlStore {
    /// Opens (and creates, `0600`) the database, brings its schema up to date and builds the pools. `runtime` is where
    /// its blocking work will run from now on.
    pub async fn open(config: StoreConfig, runtime: Handle) -> Result<Arc<Self>, OpenError> {
        let at = runtime.clone();
        runtime
            .spawn_blocking(move || open(&config, &at))
            .await
            .map_err(|gone| OpenError::Connect(gone.into()))?
    }

    /// Whether the database answers; cheap. For `/ready`, whose caller waits for other checks too: so it does not wait as
    /// long as a request would.
    ///
    /// A call that has been under way for longer than its deadline is an answer, too: its connection does not come back by
    /// itself, and with each such call there is one connection less.
    pub async fn ping(&self) -> Result<(), StoreError> {
        use crate::schema::users::dsl::{id, users};
        if self.db.is_stuck() {
            return Err(unavailable(
                "the database",
                "a call is under way since long before its deadline",
            ));
        }
        let asked = self.db.query(|conn| {
            // Reads the file, which `SELECT 1` does not.
            users.select(id).first::<String>(conn).optional()?;
            Ok(())
        });
        tokio::time::timeout(PING, asked)
            .await
            .unwrap_or_else(|elapsed| Err(unavailable("an answer of the database", elapsed)))
    }

    /// What the pools of connections are doing; for metrics. Cheap.
    pub fn pools(&self) -> Vec<domain::metrics::PoolStats> {
        self.db.stats()
    }

    /// Empties `SQLite`'s write-ahead log if it is larger than this. `SQLite` itself starts it over only at a moment without a
    /// reader, and there may be none for as long as it is busy. Here writers wait, some seconds at most, until the readers of
    /// before are done; if they are not, the next call tries again.
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

    /// The longest time between the moment at which somebody asks for a write and the moment at which it can still be
    /// committed.
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
    let mut conn = Manager::new(target.clone())
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

/// Makes the file before `SQLite` would (with the umask's rights), and takes it from other users if an earlier release let
/// them read it; `SQLite` gives `-wal` and `-shm` the rights of the file.
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
        // A file of another account stays as it is.
        let narrowed = file.set_permissions(Permissions::from_mode(mode & 0o7700));
        narrowed.or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}
