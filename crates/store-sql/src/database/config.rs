//! How a database is opened.

use std::time::Duration;

use secrecy::SecretString;

/// The database and its limits.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `sqlite://PATH` or (feature `postgres`) `postgres://…`, which goes to libpq with all its parameters (`sslmode`, …).
    /// Secret, because it may hold a password.
    pub url: SecretString,
    /// Number of connections for reads of users' requests. Scans have a quarter as many. On Postgres, users' writes have as
    /// many, sandboxes' reports and background work half as many each.
    pub connections: u32,
    /// Time that a call waits for a slot before it fails with [`StoreError::Unavailable`](domain::error::StoreError::Unavailable).
    pub slot_timeout: Duration,
    /// Time that a call may take once it has a slot. It is longer than Postgres' own timeouts of statements (30 s) and locks
    /// (10 s), because it ends calls of a database that does not respond at all.
    pub job_timeout: Duration,
}

impl StoreConfig {
    /// A configuration with 4 connections, 5 seconds to wait for a slot and 60 seconds per call.
    pub fn new(url: impl Into<SecretString>) -> Self {
        Self {
            url: url.into(),
            connections: 4,
            slot_timeout: Duration::from_secs(5),
            job_timeout: Duration::from_secs(60),
        }
    }
}
