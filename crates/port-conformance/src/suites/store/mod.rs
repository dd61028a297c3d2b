//! What all repositories of a store share.

pub mod concurrency;
pub mod hosts;
pub mod idempotency;
pub mod leases;
pub mod nul_text;
pub mod pruning;
