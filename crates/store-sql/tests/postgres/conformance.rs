//! The conformance tests of every repository port, each in a database of its own.

use std::ops::Deref;

use port_conformance::StorePorts;
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, Database};

/// In this order: the store goes before its database.
struct Fresh {
    ports: StorePorts,
    _database: Database,
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

mod settings {
    use super::fresh;
    port_conformance::settings_repository_conformance!(fresh());
}

mod secrets {
    use super::fresh;
    port_conformance::secret_repository_conformance!(fresh());
}

mod api_keys {
    use super::fresh;
    port_conformance::api_key_repository_conformance!(fresh());
}

mod sandboxes {
    use super::fresh;
    port_conformance::sandbox_repository_conformance!(fresh());
}

mod warm {
    use super::fresh;
    port_conformance::warm_repository_conformance!(fresh());
}

mod conversations {
    use super::fresh;
    port_conformance::conversation_repository_conformance!(fresh());
}

mod events {
    use super::fresh;
    port_conformance::event_store_conformance!(fresh());
}

mod arrivals {
    use super::fresh;
    port_conformance::event_sequence_conformance!(fresh());
}

mod answers {
    use super::fresh;
    port_conformance::idempotency_repository_conformance!(fresh());
}

mod hosts {
    use super::fresh;
    port_conformance::host_repository_conformance!(fresh());
}

mod leases {
    use super::fresh;
    port_conformance::lease_repository_conformance!(fresh());
}

mod vault {
    use super::fresh;
    port_conformance::vault_repository_conformance!(fresh());
}

mod sealed {
    use super::fresh;
    port_conformance::sealed_records_conformance!(fresh());
}

mod administration {
    use super::fresh;
    port_conformance::administration_conformance!(fresh());
}

mod audit {
    use super::fresh;
    port_conformance::audit_log_conformance!(fresh());
}

mod users {
    use super::fresh;
    port_conformance::user_repository_conformance!(fresh());
}

mod pruning {
    use super::fresh;
    port_conformance::pruning_conformance!(fresh());
}

mod crowd {
    use super::fresh;
    port_conformance::concurrency_conformance!(fresh());
}

mod usage {
    use super::fresh;
    port_conformance::usage_repository_conformance!(fresh());
}

mod odd_text {
    use super::fresh;
    port_conformance::unusual_text_conformance!(fresh());
}

mod pending_messages {
    use super::fresh;
    port_conformance::pending_message_repository_conformance!(fresh());
}

mod start_tasks {
    use super::fresh;
    port_conformance::start_task_repository_conformance!(fresh());
}
