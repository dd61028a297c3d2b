//! Opening the database; one struct that implements every repository port.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diesel::prelude::*;
use domain::error::StoreError;
use secrecy::SecretString;
use tokio::runtime::Handle;

use crate::changes::Changes;
use crate::connection::{InvalidStorageUrl, Manager, Target};
use crate::error::unavailable;
use crate::migrate::{self, MigrationError};
use crate::pool::Db;

/// How long [`SqlStore::ping`] waits.
const PING: Duration = Duration::from_secs(1);

/// What to open and how much of it to use.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `sqlite://PATH` or (feature `postgres`) `postgres://…`, which goes to libpq with all its parameters (`sslmode`, …). Secret, because it may hold a password.
    pub url: SecretString,
    /// Connections for reads of users' requests (and for Postgres as many for their writes, half as many for what sandboxes
    /// report, and half as many for background work).
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
    Connect(#[source] domain::error::Cause),
    /// The schema could not be brought up to date.
    #[error(transparent)]
    Migrate(#[from] MigrationError),
}

/// Every repository port, on one database.
pub struct SqlStore {
    pub(crate) db: Db,
    pub(crate) changes: Changes,
}

impl SqlStore {
    /// Opens (and creates, `0600`) the database, brings its schema up to date and builds the pools. `runtime` is where
    /// its blocking work will run from now on.
    pub async fn open(config: StoreConfig, runtime: Handle) -> Result<Arc<Self>, OpenError> {
        let at = runtime.clone();
        runtime
            .spawn_blocking(move || open(&config, at))
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
        let asked = self.db.look(|conn| {
            // Reads the file, which `SELECT 1` does not.
            users.select(id).first::<String>(conn).optional()?;
            Ok(())
        });
        tokio::time::timeout(PING, asked)
            .await
            .unwrap_or_else(|elapsed| Err(unavailable("an answer of the database", elapsed)))
    }

    /// What the pools of connections are doing; for metrics. Cheap.
    pub fn pools(&self) -> Vec<domain::measure::Pool> {
        self.db.measured()
    }

    /// The longest time between the moment at which somebody asks for a write and the moment at which it can still be
    /// committed.
    pub fn longest_write(&self) -> Duration {
        self.db.longest_write()
    }
}

fn open(config: &StoreConfig, runtime: Handle) -> Result<Arc<SqlStore>, OpenError> {
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
    let changes = Changes::of(&target, &runtime);
    let db = Db::new(&target, config, runtime);
    Ok(Arc::new(SqlStore { db, changes }))
}

/// Makes the file before `SQLite` would (with the umask's rights); `SQLite` gives `-wal` and `-shm` the rights of the file.
fn create_private(path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}
