//! `SqlStore::inspect` on an `SQLite` database, which it does not change.
#![expect(clippy::unwrap_used, reason = "tests panic")]

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::encryption::vault::VaultRepository as _;
use store_sql::{SchemaStatus, SqlStore, StoreConfig, StoreInspection};
use tempfile::TempDir;
use tokio::runtime::Handle;

fn config(directory: &TempDir) -> StoreConfig {
    // In a URL, SQLite would interpret these characters.
    StoreConfig::new(format!(
        "sqlite://{}/a?b#%41.db",
        directory.path().display()
    ))
}

async fn inspect(directory: &TempDir) -> StoreInspection {
    SqlStore::inspect(config(directory), Handle::current())
        .await
        .unwrap()
}

fn change(directory: &TempDir, sql: &str) {
    let path = directory.path().join("a?b#%41.db");
    SqliteConnection::establish(&path.to_string_lossy())
        .unwrap()
        .batch_execute(sql)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection_compares_the_schema_and_changes_nothing() {
    let directory = TempDir::new().unwrap();
    assert_eq!(inspect(&directory).await.schema, SchemaStatus::Missing);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let open = SqlStore::open(config(&directory), Handle::current());
    let open = open.await.unwrap();
    let inspection = inspect(&directory).await;
    assert_eq!(
        (inspection.schema, inspection.now),
        (SchemaStatus::Current, None)
    );
    let store = inspection.store.unwrap();
    assert_eq!(store.installation().await.unwrap(), None);
    store.withdraw("unknown").await.unwrap_err();
    drop(store);

    assert_eq!(open.missing_migrations().await.unwrap(), 0);
    let last = "(SELECT max(version) FROM __diesel_schema_migrations)";
    change(
        &directory,
        &format!("DELETE FROM __diesel_schema_migrations WHERE version = {last}"),
    );
    let inspection = inspect(&directory).await;
    assert_eq!(inspection.schema, SchemaStatus::Older(1));
    assert!(inspection.store.is_none());
    assert_eq!(
        open.missing_migrations().await.unwrap(),
        1,
        "in the open store"
    );
    assert_eq!(inspect(&directory).await.schema, SchemaStatus::Older(1));

    change(
        &directory,
        "INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000000')",
    );
    let newer = SchemaStatus::Newer("99990101000000".to_owned());
    assert_eq!(inspect(&directory).await.schema, newer);
}
