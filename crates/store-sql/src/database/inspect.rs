//! Inspects a database without changing it, for `doctor`.

use std::sync::Arc;

use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::clock::Timestamp;
use domain::error::StoreError;
use tokio::runtime::Handle;

use crate::database::changes::SqlChangeFeed;
use crate::database::connection::{AnyConnection, ConnectionManager, Target};
use crate::database::migrate;
use crate::database::pool::{Database, JobMode, Workload};
use crate::store::{OpenError, SqlStore, StoreConfig};

/// The schema of a database, compared with the schema of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaStatus {
    /// The database, or its schema, does not exist.
    Missing,
    /// The number of migrations that have not run.
    Older(usize),
    /// The schemas are equal.
    Current,
    /// The database has this version, which the program does not know.
    Newer(String),
}

/// Result of [`SqlStore::inspect`].
pub struct StoreInspection {
    /// State of the schema.
    pub schema: SchemaStatus,
    /// The repositories, if the schema is [`SchemaStatus::Current`]. Use them for reading only; `SQLite` opens read-only.
    pub store: Option<Arc<SqlStore>>,
    /// Time of the database server. `None` for `SQLite`, which has no clock of its own.
    pub now: Option<Timestamp>,
}

impl SqlStore {
    /// Inspects the database without creating, migrating or writing anything.
    pub async fn inspect(
        config: StoreConfig,
        runtime: Handle,
    ) -> Result<StoreInspection, OpenError> {
        let handle = runtime.clone();
        runtime
            .spawn_blocking(move || inspect(&config, &handle))
            .await
            .map_err(|error| OpenError::Connect(error.into()))?
    }

    /// Number of migrations that the open database lacks. `open` runs all migrations, so a positive number means that an
    /// older database replaced this one, for example a restored backup.
    pub async fn missing_migrations(&self) -> Result<usize, StoreError> {
        let schema = self
            .run(Workload::Requests, JobMode::Read, |conn| Ok(schema(conn)?))
            .await?;
        Ok(match schema {
            SchemaStatus::Older(count) => count,
            // Every other call fails on an empty database, so this one need not report it.
            SchemaStatus::Missing | SchemaStatus::Current | SchemaStatus::Newer(_) => 0,
        })
    }
}

fn inspect(config: &StoreConfig, runtime: &Handle) -> Result<StoreInspection, OpenError> {
    let mut target = Target::parse(&config.url)?;
    if let Target::Sqlite(path) = &mut target {
        if !path.exists() {
            return Ok(StoreInspection {
                schema: SchemaStatus::Missing,
                store: None,
                now: None,
            });
        }
        *path = read_only(path).into();
    }
    let connect_error = |error: diesel::result::Error| OpenError::Connect(error.into());
    let mut conn = ConnectionManager(target.clone())
        .establish()
        .map_err(|error| OpenError::Connect(error.into()))?;
    let schema = schema(&mut conn).map_err(connect_error)?;
    let now = now(&mut conn).map_err(connect_error)?;
    drop(conn);
    let store = match schema {
        SchemaStatus::Current => {
            let changes = SqlChangeFeed::start(&target, runtime);
            let config = StoreConfig {
                connections: 1,
                ..config.clone()
            };
            let db = Database::new(&target, &config, runtime);
            Some(Arc::new(SqlStore {
                db,
                changes,
                // Without a path, `shorten_log` changes nothing.
                wal_path: None,
            }))
        }
        _ => None,
    };
    Ok(StoreInspection { schema, store, now })
}

/// The `SQLite` URI that opens a file read-only.
fn read_only(path: &std::path::Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped = absolute
        .to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{escaped}?mode=ro")
}

fn schema(conn: &mut AnyConnection) -> QueryResult<SchemaStatus> {
    let has_table = match conn {
        AnyConnection::Sqlite(_) => {
            "count(*) FROM sqlite_master WHERE name = '__diesel_schema_migrations'"
        }
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(_) => "count(to_regclass('__diesel_schema_migrations'))",
    };
    if select(sql::<BigInt>(has_table)).get_result::<i64>(conn)? == 0 {
        return Ok(SchemaStatus::Missing);
    }
    let applied = sql::<Text>("version FROM __diesel_schema_migrations ORDER BY version");
    let applied: Vec<String> = select(applied).load(conn)?;
    let known = migrate::versions(conn);
    if let Some(newer) = applied.iter().find(|it| !known.contains(it)) {
        return Ok(SchemaStatus::Newer(newer.clone()));
    }
    Ok(match known.len() - applied.len().min(known.len()) {
        0 => SchemaStatus::Current,
        missing => SchemaStatus::Older(missing),
    })
}

/// `SQLite` would return the clock of this machine.
fn now(conn: &mut AnyConnection) -> QueryResult<Option<Timestamp>> {
    match conn {
        AnyConnection::Sqlite(_) => Ok(None),
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => {
            let micros = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
            let micros = select(sql::<BigInt>(micros)).get_result(conn)?;
            Ok(Some(Timestamp::from_micros(micros)))
        }
    }
}
