//! Repository ports through diesel: `SQLite`, and Postgres (feature `postgres`, on by default; with a libpq of its own).
//!
//! Knows: tables, queries, transactions, migrations, keyset tokens.
//! Must never know: HTTP, use-cases, what a sealed text contains, the time (it comes in by parameter).
//!
//! One body of queries serves both databases (`connection::AnyConnection`). Rows are private; `TryFrom` a row is the
//! only way out, and what does not decode is `StoreError::Corrupt`. Each method is one transaction on a blocking thread
//! behind a bounded queue (`pool`).

mod administration;
mod api_keys;
#[cfg(feature = "postgres")]
mod append;
mod audit;
mod changes;
mod circuit;
mod claims;
mod codec;
mod connection;
mod conversation_rows;
mod conversations;
mod deletion;
mod error;
mod events;
mod fixed;
mod hosts;
mod idempotency;
mod inside;
mod leases;
mod look;
mod migrate;
mod occupancy;
mod own_list;
mod page_token;
mod pending;
mod places;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod pull_requests;
mod purge;
mod retirement;
mod sandbox_rows;
mod sandboxes;
mod schema;
mod sealed;
mod secrets;
mod settings;
mod sql_types;
mod start_rows;
mod start_tasks;
mod store;
mod usage;
mod users;
mod vault;
mod warm;

pub use connection::InvalidStorageUrl;
pub use look::{StoreInspection, SchemaStatus};
pub use migrate::MigrationError;
pub use store::{OpenError, SqlStore, StoreConfig};
