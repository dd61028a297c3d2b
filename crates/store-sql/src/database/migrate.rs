//! Migrations: embedded plain SQL, one directory per database with the same version names.

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
#[cfg(feature = "postgres")]
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use domain::error::chain;

use crate::database::connection::AnyConnection;
#[cfg(feature = "postgres")]
use crate::database::postgres;

const SQLITE_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
#[cfg(feature = "postgres")]
const POSTGRES_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// Error of a schema migration, which was rolled back.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer version of the program has migrated the database.
    #[error(
        "the database has schema version {version}, which this version of the program does not know: \
         start the newer version, or restore a backup from before the upgrade"
    )]
    NewerSchema {
        /// The unknown version.
        version: String,
    },
    /// The database returned an error.
    #[error("a database migration failed and was rolled back; fix the cause and start again")]
    Failed(#[source] domain::error::BoxError),
}

impl From<diesel::result::Error> for MigrationError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs all missing migrations under a lock, which other processes wait for. Returns how many migrations ran.
pub(crate) fn run(conn: &mut AnyConnection) -> Result<usize, MigrationError> {
    match conn {
        AnyConnection::Sqlite(conn) => {
            let ran = conn.exclusive_transaction(|conn| run_pending(conn, SQLITE_MIGRATIONS))?;
            // Updates outdated planner statistics. A failure, for example on a full disk, is ignored.
            if let Err(error) = conn.batch_execute("PRAGMA optimize = 0x10002;") {
                tracing::debug!(error = %chain(&error), "cannot update the planner's statistics");
            }
            Ok(ran)
        }
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => conn.transaction(|conn| {
            conn.batch_execute(postgres::MIGRATION_SESSION_SETUP)?;
            // The number is arbitrary but must be unique to this service. The lock ends with the transaction.
            diesel::sql_query("SELECT pg_advisory_xact_lock(4707318202611210)").execute(conn)?;
            conn.batch_execute(postgres::MIGRATION_TRANSACTION_SETUP)?;
            run_pending(conn, POSTGRES_MIGRATIONS)
        }),
    }
}

pub(crate) fn versions(conn: &AnyConnection) -> Vec<String> {
    match conn {
        AnyConnection::Sqlite(_) => known_versions::<diesel::sqlite::Sqlite>(&SQLITE_MIGRATIONS),
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(_) => known_versions::<diesel::pg::Pg>(&POSTGRES_MIGRATIONS),
    }
    .unwrap_or_default()
}

fn known_versions<DB: diesel::backend::Backend>(
    migrations: &EmbeddedMigrations,
) -> diesel::migration::Result<Vec<String>>
where
    EmbeddedMigrations: MigrationSource<DB>,
{
    let migrations = MigrationSource::<DB>::migrations(migrations)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}

fn run_pending<C, DB>(conn: &mut C, migrations: EmbeddedMigrations) -> Result<usize, MigrationError>
where
    C: MigrationHarness<DB>,
    DB: diesel::backend::Backend,
    EmbeddedMigrations: MigrationSource<DB>,
{
    let known = known_versions::<DB>(&migrations).map_err(MigrationError::Failed)?;
    let applied = conn.applied_migrations().map_err(MigrationError::Failed)?;
    if let Some(version) = applied
        .iter()
        .map(ToString::to_string)
        .find(|version| !known.contains(version))
    {
        return Err(MigrationError::NewerSchema { version });
    }
    let ran = conn
        .run_pending_migrations(migrations)
        .map_err(MigrationError::Failed)?;
    Ok(ran.len())
}
