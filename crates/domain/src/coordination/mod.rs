//! Coordination of the processes that share a store.

pub mod change;
pub mod host;
pub mod idempotency;
pub mod lease;
