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
async fn whatever_an_older_version_stored_is_shown_as_if_stored_now() {
    let directory = TempDir::new().unwrap();
    let now = open(&directory.path().join("now.db")).await;
    upgrade::fill(&now).await;
    let expected = upgrade::shown(&now).await;
    for version in upgrade::versions() {
        let path = directory.path().join(&version);
        SqliteConnection::establish(&path.to_string_lossy())
            .unwrap()
            .batch_execute(&upgrade::database_of("sqlite", &version))
            .unwrap_or_else(|error| panic!("{version}: {error}"));
        let shown = upgrade::shown(&open(&path).await).await;
        upgrade::compare(&version, &shown, &expected);
    }
}

#[tokio::test]
async fn the_first_user_administers_and_the_log_is_not_changed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store.db");
    let connect = || SqliteConnection::establish(&path.to_string_lossy()).unwrap();
    let versions = upgrade::versions();
    let older = upgrade::database_of("sqlite", &versions[0]);
    let older = older + upgrade::WITH_ADMIN;
    connect().batch_execute(&older).unwrap();
    let ports = open(&path).await;
    upgrade::check_roles(&ports).await;
    upgrade::write_a_line(&ports).await;
    let refused = connect().batch_execute(upgrade::FORGERY).unwrap_err();
    assert!(refused.to_string().contains("only added to"), "{refused}");
}
