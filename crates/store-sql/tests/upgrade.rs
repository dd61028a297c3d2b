//! Upgrades of a `SQLite` database with data.
#![expect(clippy::unwrap_used, reason = "tests panic")]

#[path = "common/upgrade.rs"]
mod upgrade;

use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use port_conformance::StorePorts;
use store_sql::{SqlStore, StoreConfig};
use tempfile::TempDir;
use tokio::runtime::Handle;

async fn open(path: &Path) -> StorePorts {
    let config = StoreConfig::new(format!("sqlite://{}", path.display()));
    StorePorts::of(SqlStore::open(config, Handle::current()).await.unwrap())
}

#[tokio::test]
async fn data_of_older_versions_reads_like_new_data() {
    let directory = TempDir::new().unwrap();
    let new = open(&directory.path().join("new.db")).await;
    upgrade::fill(&new).await;
    let expected = upgrade::describe(&new).await;
    for version in upgrade::versions() {
        let path = directory.path().join(&version);
        SqliteConnection::establish(&path.to_string_lossy())
            .unwrap()
            .batch_execute(&upgrade::database_of("sqlite", &version))
            .unwrap_or_else(|error| panic!("{version}: {error}"));
        let actual = upgrade::describe(&open(&path).await).await;
        upgrade::assert_same(&version, &actual, &expected);
    }
}

#[tokio::test]
async fn an_upgrade_makes_one_administrator_and_protects_the_audit_log() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store.db");
    let connect = || SqliteConnection::establish(&path.to_string_lossy()).unwrap();
    let versions = upgrade::versions();
    let older = upgrade::database_of("sqlite", &versions[0]);
    let older = older + upgrade::WITH_ADMIN;
    connect().batch_execute(&older).unwrap();
    let ports = open(&path).await;
    upgrade::check_roles(&ports).await;
    upgrade::add_audit_entry(&ports).await;
    let refused = connect().batch_execute(upgrade::FORGERY).unwrap_err();
    assert!(refused.to_string().contains("only added to"), "{refused}");
}
