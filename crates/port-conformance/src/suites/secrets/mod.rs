//! Secrets, settings and everything else that is sealed.

pub mod repository;
pub mod sealed_records;
pub mod settings;
pub mod vault;
