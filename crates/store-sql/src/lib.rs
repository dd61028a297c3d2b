//! Repository ports through diesel: `SQLite`, and Postgres (feature `postgres`, on by default; with a libpq of its own).
//!
//! Knows: tables, queries, transactions, migrations, keyset tokens.
//! Must never know: HTTP, use-cases, what a sealed text contains, the time (it comes in by parameter).
//!
//! One body of queries serves both databases (`connection::AnyConnection`). Rows are private; `TryFrom` a row is the
//! only way out, and what does not decode is `StoreError::Corrupt`. Each method is one transaction on a blocking thread
//! behind a bounded queue (`pool`).

mod conversations;
mod database;
mod error;
mod events;
mod idempotency;
mod leases;
mod queries;
mod sandboxes;
mod schema;
mod secrets;
mod start_tasks;
mod store;
mod users;

pub use database::connection::InvalidStorageUrl;
pub use database::inspect::{SchemaStatus, StoreInspection};
pub use database::migrate::MigrationError;
pub use store::{OpenError, SqlStore, StoreConfig};
