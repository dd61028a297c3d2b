//! The start task repository.

pub mod assignment;
pub mod lease_release;
pub mod lifecycle;
pub mod repository;
