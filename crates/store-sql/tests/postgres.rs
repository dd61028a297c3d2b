//! The laws of every repository port, on Postgres: `cargo test -p store-sql --features postgres --test postgres`, with
//! `STORE_SQL_TEST_POSTGRES` naming a throw-away server (`postgres://postgres@127.0.0.1:5432`) in which each test makes
//! a database of its own.
#![cfg(feature = "postgres")]

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use port_conformance::Ports;
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

#[expect(
    clippy::disallowed_methods,
    reason = "names the server for this test alone"
)]
fn server() -> String {
    std::env::var("STORE_SQL_TEST_POSTGRES")
        .expect("STORE_SQL_TEST_POSTGRES names a throw-away Postgres server")
}

async fn fresh() -> Ports {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let name = format!("laws_{}_{number}", std::process::id());
    let server = server();
    let mut admin = PgConnection::establish(&format!("{server}/postgres")).expect("the server");
    admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .expect("a database");
    let config = StoreConfig::new(format!("{server}/{name}"));
    Ports::of(
        SqlStore::open(config, Handle::current())
            .await
            .expect("open"),
    )
}

mod settings {
    use super::fresh;
    port_conformance::settings_repository_conformance!(fresh());
}

mod api_keys {
    use super::fresh;
    port_conformance::api_key_repository_conformance!(fresh());
}

mod sandboxes {
    use super::fresh;
    port_conformance::sandbox_repository_conformance!(fresh());
}

mod conversations {
    use super::fresh;
    port_conformance::conversation_repository_conformance!(fresh());
}

mod events {
    use super::fresh;
    port_conformance::event_store_conformance!(fresh());
}

mod start_tasks {
    use super::fresh;
    port_conformance::start_task_repository_conformance!(fresh());
}
