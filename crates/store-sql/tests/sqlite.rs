//! The conformance tests of every repository port, on `SQLite` in a file.

use std::ops::Deref;

use port_conformance::StorePorts;
use store_sql::{SqlStore, StoreConfig};
use tempfile::TempDir;
use tokio::runtime::Handle;

struct Fresh {
    ports: StorePorts,
    _directory: TempDir,
}

impl Deref for Fresh {
    type Target = StorePorts;
    fn deref(&self) -> &StorePorts {
        &self.ports
    }
}

async fn fresh() -> Fresh {
    let directory = TempDir::new().expect("temporary directory");
    let url = format!("sqlite://{}/store.db", directory.path().display());
    let store = SqlStore::open(StoreConfig::new(url), Handle::current()).await;
    Fresh {
        ports: StorePorts::of(store.expect("open")),
        _directory: directory,
    }
}

port_conformance::store_conformance!(fresh);
