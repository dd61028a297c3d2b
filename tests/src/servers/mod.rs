//! Real servers beside the service: container engines, Postgres, and proxies.

pub mod engine;
pub mod postgres;
pub mod proxy;
