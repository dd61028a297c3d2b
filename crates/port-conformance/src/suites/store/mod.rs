//! What all repositories of a store share.

pub mod concurrency;
pub mod hosts;
pub mod idempotency;
pub mod leases;
pub mod pruning;
pub mod unusual_text;
