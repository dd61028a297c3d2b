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
    let open = async |url| {
        let store = SqlStore::open(StoreConfig::new(url), Handle::current()).await;
        store.expect("open")
    };
    let migrate = async |url| drop(open(url).await);
    let database = Cluster::shared().migrated_database(migrate).await;
    Fresh {
        ports: StorePorts::of(open(database.url()).await),
        _database: database,
    }
}

port_conformance::store_conformance!(fresh);
