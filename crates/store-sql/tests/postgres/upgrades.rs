//! Upgrades of a database with data.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use port_conformance::Ports;
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, Database};
use crate::upgrade;

async fn open(database: &Database) -> Ports {
    let config = StoreConfig::new(database.url());
    Ports::of(SqlStore::open(config, Handle::current()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_an_older_version_stored_is_shown_as_if_stored_now() {
    let fresh = Cluster::shared().database();
    let now = open(&fresh).await;
    upgrade::fill(&now).await;
    let expected = upgrade::shown(&now).await;
    for version in upgrade::versions() {
        let database = Cluster::shared().database();
        PgConnection::establish(&database.url())
            .unwrap()
            .batch_execute(&upgrade::database_of("postgres", &version))
            .unwrap_or_else(|error| panic!("{version}: {error}"));
        let shown = upgrade::shown(&open(&database).await).await;
        upgrade::compare(&version, &shown, &expected);
    }
}
