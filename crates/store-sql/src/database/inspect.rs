//! A inspect at a database that changes nothing in it: for `doctor`.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::clock::Timestamp;
use domain::error::StoreError;
use tokio::runtime::Handle;

use crate::database::changes::SqlChangeFeed;
use crate::database::connection::{AnyConnection, Manager, Target, on_backend};
use crate::database::migrate;
use crate::database::pool::Db;
use crate::store::{OpenError, SqlStore, StoreConfig};

/// The schema of a database, compared with the one of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaStatus {
    /// There is none, or not even a database file.
    Missing,
    /// So many migrations are to be run.
    Older(usize),
    /// The same.
    Current,
    /// It has this version, which the program does not know.
    Newer(String),
}

/// What was inspection.
pub struct StoreInspection {
    /// The schema.
    pub schema: SchemaStatus,
    /// The repositories, if the schema is [`SchemaStatus::Current`]. They are for reading (for `SQLite` nothing else works).
    pub store: Option<Arc<SqlStore>>,
    /// What time the database thinks it is, if it has a clock of its own.
    pub now: Option<Timestamp>,
}

impl SqlStore {
    /// Looks at the database without making, migrating or writing anything.
    pub async fn inspect(config: StoreConfig, runtime: Handle) -> Result<StoreInspection, OpenError> {
        let at = runtime.clone();
        runtime
            .spawn_blocking(move || inspect(&config, &at))
            .await
            .map_err(|gone| OpenError::Connect(gone.into()))?
    }
}

impl SqlStore {
    /// How many migrations of this program the open database lacks. It had them all when it was opened: it was exchanged
    /// for an older one since, for example by restoring a backup.
    pub async fn missing_migrations(&self) -> Result<usize, StoreError> {
        let schema = self.db.read(|conn| Ok(schema(conn)?)).await?;
        Ok(match schema {
            SchemaStatus::Older(count) => count,
            // An empty database is one that cannot be read, which other calls say.
            SchemaStatus::Missing | SchemaStatus::Current | SchemaStatus::Newer(_) => 0,
        })
    }
}

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct VersionRow {
    #[diesel(sql_type = Text)]
    version: String,
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
    let failed = |error: diesel::result::Error| OpenError::Connect(error.into());
    let mut conn = Manager::new(target.clone())
        .establish()
        .map_err(|error| OpenError::Connect(error.into()))?;
    let schema = schema(&mut conn).map_err(failed)?;
    let now = now(&mut conn).map_err(failed)?;
    drop(conn);
    let store = match schema {
        SchemaStatus::Current => {
            let changes = SqlChangeFeed::of(&target, runtime);
            let one = StoreConfig {
                connections: 1,
                ..config.clone()
            };
            let db = Db::new(&target, &one, runtime);
            // Nothing is to be changed.
            let log = None;
            Some(Arc::new(SqlStore { db, changes, log }))
        }
        _ => None,
    };
    Ok(StoreInspection { schema, store, now })
}

/// `SQLite`'s own way to name a file that is to be read only.
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
            "SELECT count(*) AS number FROM sqlite_master WHERE name = '__diesel_schema_migrations'"
        }
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(_) => {
            "SELECT count(to_regclass('__diesel_schema_migrations')) AS number"
        }
    };
    let found: NumberRow = on_backend!(conn, |c| diesel::sql_query(has_table).get_result(c)?);
    if found.number == 0 {
        return Ok(SchemaStatus::Missing);
    }
    let query = "SELECT version FROM __diesel_schema_migrations ORDER BY version";
    let applied: Vec<VersionRow> = on_backend!(conn, |c| diesel::sql_query(query).load(c)?);
    let known = migrate::versions(conn);
    if let Some(newer) = applied.iter().find(|it| !known.contains(&it.version)) {
        return Ok(SchemaStatus::Newer(newer.version.clone()));
    }
    Ok(match known.len() - applied.len().min(known.len()) {
        0 => SchemaStatus::Current,
        missing => SchemaStatus::Older(missing),
    })
}

/// `SQLite` asks this machine, which we can do ourselves.
fn now(conn: &mut AnyConnection) -> QueryResult<Option<Timestamp>> {
    match conn {
        AnyConnection::Sqlite(_) => Ok(None),
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => {
            let query =
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS number";
            let micros: NumberRow = diesel::sql_query(query).get_result(conn)?;
            Ok(Some(Timestamp::from_micros(micros.number)))
        }
    }
}
