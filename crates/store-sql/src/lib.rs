//! Repository ports through diesel: `SQLite`, and Postgres (feature `postgres`, on by default; with a libpq of its own).
//!
//! Knows: tables, queries, transactions, migrations, keyset tokens.
//! Must never know: HTTP, use cases, the content of sealed texts, the clock (callers pass the time).
//!
//! The same queries serve both databases (`database::connection::AnyConnection`). Row types are private; `TryFrom` converts
//! them, and rows that do not decode yield `StoreError::Corrupt`. Each method runs one transaction on a blocking thread
//! behind a bounded queue (`database::pool`).

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
