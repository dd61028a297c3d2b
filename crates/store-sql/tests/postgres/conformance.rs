//! The conformance tests of every repository port, each in a database of its own.

use std::ops::Deref;

use port_conformance::StorePorts;
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, TestDatabase};

/// The fields drop in this order: the store before its database.
struct Fresh {
    ports: StorePorts,
    _database: TestDatabase,
}

impl Deref for Fresh {
    type Target = StorePorts;
    fn deref(&self) -> &StorePorts {
        &self.ports
    }
}

async fn fresh() -> Fresh {
    let database = Cluster::shared().database();
    let store = SqlStore::open(StoreConfig::new(database.url()), Handle::current()).await;
    Fresh {
        ports: StorePorts::of(store.expect("open")),
        _database: database,
    }
}

port_conformance::store_conformance!(fresh);
