//! The event store.

pub mod sequence;
pub mod store;
