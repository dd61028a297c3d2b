//! Sandbox repositories and sandbox backends.

pub mod backend;
pub mod lifecycle;
pub mod repository;
pub mod retirement;
pub mod retirement_races;
pub mod warm;
