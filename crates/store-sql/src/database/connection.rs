//! One connection type for every database, chosen by the scheme of the URL.
//!
//! The derived `establish` of a `MultiConnection` tries each variant in turn, so a mistyped Postgres URL would open a `SQLite`
//! file of that name. Therefore [`ConnectionManager`] selects the variant by the scheme.

use std::time::{Duration, Instant};

use diesel::connection::{
    AnsiTransactionManager, Connection, SimpleConnection, TransactionManager,
};
use diesel::r2d2::{ManageConnection, R2D2Connection};
use domain::crash_point;
use domain::error::chain;
use secrecy::{ExposeSecret, SecretString};

use crate::error::TransactionError;

/// Runs the same expression on the concrete connection, for statements that the combined backend does not support: batch
/// inserts that skip existing rows, and migrations.
macro_rules! on_backend {
    ($conn:expr, |$c:ident| $body:expr) => {
        match $conn {
            $crate::database::connection::AnyConnection::Sqlite($c) => $body,
            #[cfg(feature = "postgres")]
            $crate::database::connection::AnyConnection::Postgres($c) => $body,
        }
    };
}
pub(crate) use on_backend;

#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConnection {
    /// Bundled `SQLite`.
    Sqlite(diesel::SqliteConnection),
    /// Postgres through libpq.
    #[cfg(feature = "postgres")]
    Postgres(diesel::PgConnection),
}

/// The backend of [`AnyConnection`], for boxed queries.
pub(crate) type AnyBackend = <AnyConnection as Connection>::Backend;

/// The kind and location of a database. `Debug` never shows a password.
#[derive(Clone)]
pub(crate) enum Target {
    Sqlite(std::path::PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(SecretString),
}

/// The storage URL is invalid or not supported.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidStorageUrl {
    /// The URL begins with neither `sqlite://` nor `postgres://`.
    #[error("`storage.url` must begin with `sqlite://` or `postgres://`")]
    Scheme,
    /// The URL is `sqlite://` without a file name, or with a name that `SQLite` interprets in another way.
    #[error("`storage.url` must be `sqlite://PATH` with the path of a file")]
    Path,
    /// The cargo feature `postgres` is disabled.
    #[error(
        "this build does not support Postgres; build it with the cargo feature `postgres`, or set `storage.url` to `sqlite://PATH`"
    )]
    NoPostgres,
}

impl Target {
    /// Parses the scheme of the URL. libpq parses the rest of a Postgres URL.
    pub(crate) fn parse(url: &SecretString) -> Result<Self, InvalidStorageUrl> {
        let text = url.expose_secret();
        if let Some(path) = text.strip_prefix("sqlite://") {
            // For SQLite, `:memory:` and `file:…?…` are not names of files.
            if path.is_empty() || path.starts_with([':', '?']) || path.starts_with("file:") {
                return Err(InvalidStorageUrl::Path);
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            #[cfg(feature = "postgres")]
            return Ok(Self::Postgres(url.clone()));
            #[cfg(not(feature = "postgres"))]
            return Err(InvalidStorageUrl::NoPostgres);
        }
        Err(InvalidStorageUrl::Scheme)
    }
}

/// Opens and configures connections for a pool.
pub(crate) struct ConnectionManager(pub(crate) Target);

/// A connection of a pool, and what the pool must know to reuse it.
pub(crate) struct CheckedConnection {
    pub(crate) conn: AnyConnection,
    pub(crate) has_english_messages: bool,
    /// Set by [`CheckedConnection::is_lost`]; the pool discards a lost connection.
    is_known_lost: bool,
    last_used: Instant,
}

impl CheckedConnection {
    /// Whether this error means that the connection is lost. Then the pool discards it on return.
    pub(crate) fn is_lost(&mut self, error: &TransactionError) -> bool {
        self.is_known_lost = error
            .is_connection_lost()
            .unwrap_or_else(|| self.conn.ping().is_err());
        self.is_known_lost
    }
}

/// A connection that was used within this time is not pinged, which saves a round trip per call. If it is lost, the first
/// statement fails and the caller takes another connection.
const PING_SKIP_TTL: Duration = Duration::from_secs(1);

impl ConnectionManager {
    /// Opens a connection outside of a pool.
    pub(crate) fn establish(&self) -> Result<AnyConnection, diesel::r2d2::Error> {
        Ok(self.open()?.0)
    }

    /// Also returns whether the server's messages are in English.
    fn open(&self) -> Result<(AnyConnection, bool), diesel::r2d2::Error> {
        use diesel::r2d2::Error::{ConnectionError, QueryError};
        match &self.0 {
            Target::Sqlite(path) => {
                let path = path.to_string_lossy();
                let mut conn =
                    diesel::SqliteConnection::establish(&path).map_err(ConnectionError)?;
                configure(&mut conn).map_err(QueryError)?;
                Ok((AnyConnection::Sqlite(conn), true))
            }
            #[cfg(feature = "postgres")]
            Target::Postgres(url) => {
                let url = crate::database::postgres::with_defaults(url);
                let mut conn = diesel::PgConnection::establish(url.expose_secret())
                    .map_err(ConnectionError)?;
                let has_english_messages =
                    crate::database::postgres::set_up(&mut conn).map_err(QueryError)?;
                Ok((AnyConnection::Postgres(conn), has_english_messages))
            }
        }
    }
}

/// * `journal_mode=WAL` with `synchronous=NORMAL`: a commit is in the operating system's hands when it returns, so an
///   acknowledged write survives `kill -9` of the service. A power cut or kernel crash may lose the last commits (never
///   more than back to the last checkpoint, and never consistency): the price of not syncing the disk for every event.
/// * `busy_timeout`: another process (`keys create`) may hold the write lock for a moment.
/// * `journal_size_limit`: a log that grew (a large transaction, a reader that took long) shrinks to 64 MiB when it is started
///   over, which [`SqlStore::shorten_log`](crate::SqlStore::shorten_log) causes.
/// * `cache_size`: 1 MiB for each connection instead of 2. The operating system caches the file as well.
/// * `mmap_size=0`, the default, stays: a read error must be an error, not a signal.
const SQLITE_SETUP: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; \
    PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; \
    PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -1024;";

/// Timeout and pause of retries while another process opens the same file.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);
const SETUP_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Configures a connection, with retries. `busy_timeout` does not apply to a change of the journal mode: if two processes
/// create the file at once, or one opens it while another closes it, one of them fails immediately. Blocks.
#[expect(
    clippy::disallowed_methods,
    reason = "connections are opened on threads that may block"
)]
fn configure(conn: &mut diesel::SqliteConnection) -> diesel::QueryResult<()> {
    let started = Instant::now();
    loop {
        match conn.batch_execute(SQLITE_SETUP) {
            Err(diesel::result::Error::DatabaseError(_, info))
                if info.message() == "database is locked" && started.elapsed() < SETUP_TIMEOUT =>
            {
                std::thread::sleep(SETUP_RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}

impl ManageConnection for ConnectionManager {
    type Connection = CheckedConnection;
    type Error = diesel::r2d2::Error;

    fn connect(&self) -> Result<CheckedConnection, Self::Error> {
        let (conn, has_english_messages) = self.open()?;
        Ok(CheckedConnection {
            conn,
            has_english_messages,
            is_known_lost: false,
            last_used: Instant::now(),
        })
    }

    fn is_valid(&self, checked: &mut CheckedConnection) -> Result<(), Self::Error> {
        if checked.last_used.elapsed() < PING_SKIP_TTL {
            return Ok(());
        }
        checked.conn.ping().map_err(diesel::r2d2::Error::QueryError)
    }

    /// Called when a connection returns to the pool.
    fn has_broken(&self, checked: &mut CheckedConnection) -> bool {
        checked.last_used = Instant::now();
        checked.is_known_lost || std::thread::panicking() || checked.conn.is_broken()
    }
}

/// The isolation that a job needs, and how long it holds its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobMode {
    /// A single statement that reads. It sees one snapshot and saves the round trips of a transaction.
    Query,
    /// A [`JobMode::Query`] whose result may be large. The job holds its slot until the caller has received the result, which
    /// bounds the large results in memory.
    QueryDocuments,
    /// A read-only transaction with one snapshot.
    Read,
    /// A [`JobMode::Read`] whose result may be large; see [`JobMode::QueryDocuments`].
    ReadDocuments,
    /// A [`JobMode::Read`] whose cost grows with the stored data and not with the result.
    Scan,
    /// A serializable transaction. `SQLite` takes the write lock at once, because a later upgrade could fail. On Postgres the job
    /// runs again after a serialization failure, so it must not move values out.
    Write,
    /// A transaction whose job first locks one row that guards everything it touches (`conversations::rows::lock_reported`,
    /// `warm::claim`). `SQLite` as for `Write`; Postgres runs with `READ COMMITTED`. A serializable transaction would fail too
    /// often for reports: with many events, unrelated reports conflict on a shared index page.
    WriteLocked,
}

impl JobMode {
    /// Whether the job only reads, so that it may be repeated.
    pub(crate) const fn is_read_only(self) -> bool {
        !matches!(self, Self::Write | Self::WriteLocked)
    }

    pub(crate) const fn is_large(self) -> bool {
        matches!(self, Self::QueryDocuments | Self::ReadDocuments)
    }

    const fn is_single_statement(self) -> bool {
        matches!(self, Self::Query | Self::QueryDocuments)
    }
}

type Transactions = <AnyConnection as Connection>::TransactionManager;

/// Begins a transaction, if the job needs one.
pub(crate) fn begin(conn: &mut AnyConnection, mode: JobMode) -> Result<(), TransactionError> {
    if mode.is_single_statement() {
        return Ok(());
    }
    let statement = match (&*conn, mode) {
        (AnyConnection::Sqlite(_), mode) if mode.is_read_only() => "BEGIN DEFERRED",
        (AnyConnection::Sqlite(_), _) => "BEGIN IMMEDIATE",
        #[cfg(feature = "postgres")]
        (AnyConnection::Postgres(_), JobMode::Write) => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        #[cfg(feature = "postgres")]
        (AnyConnection::Postgres(_), JobMode::WriteLocked) => {
            "BEGIN ISOLATION LEVEL READ COMMITTED"
        }
        #[cfg(feature = "postgres")]
        (AnyConnection::Postgres(_), _) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    on_backend!(conn, |c| AnsiTransactionManager::begin_transaction_sql(
        c, statement
    )?);
    Ok(())
}

/// Runs `job` in the open transaction, and commits or rolls back.
pub(crate) fn run_and_commit<T>(
    conn: &mut AnyConnection,
    mode: JobMode,
    job: impl FnOnce(&mut AnyConnection) -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    if mode.is_single_statement() {
        return job(conn);
    }
    let name = std::any::type_name_of_val(&job);
    // If `job` panics, the pool discards the connection (`has_broken`), and the database rolls back.
    match job(conn) {
        Ok(value) => {
            if mode.is_read_only() {
                Transactions::commit_transaction(conn)?;
            } else {
                crash_point::around(name, || Transactions::commit_transaction(conn))?;
            }
            Ok(value)
        }
        Err(job_error) => {
            if let Err(error) = Transactions::rollback_transaction(conn) {
                tracing::warn!(error = %chain(&error), "rollback failed; the pool discards the connection");
            }
            Err(job_error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_selects_the_database() {
        let parse = |text: &str| Target::parse(&SecretString::from(text)).err();
        assert_eq!(parse("sqlite:///var/lib/a.db"), None);
        assert_eq!(parse("sqlite://a.db"), None);
        for text in ["sqlite://", "sqlite://:memory:", "sqlite://file:a?mode=ro"] {
            assert_eq!(parse(text), Some(InvalidStorageUrl::Path), "{text}");
        }
        for text in [
            "",
            "a.db",
            "host=127.0.0.1 dbname=x",
            "mysql://x",
            "Sqlite://a",
        ] {
            assert_eq!(parse(text), Some(InvalidStorageUrl::Scheme), "{text}");
        }
    }
}
