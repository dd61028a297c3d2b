//! Connections to the database: opening, pooling, migrating, inspecting, and change notifications.

pub(crate) mod changes;
pub(crate) mod circuit_breaker;
pub(crate) mod config;
pub(crate) mod connection;
mod hints;
pub(crate) mod inspect;
#[cfg(feature = "postgres")]
mod listener;
pub(crate) mod migrate;
pub(crate) mod pool;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
