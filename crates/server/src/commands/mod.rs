//! Commands that work on the configuration and the store themselves, without a running service.

pub(crate) mod doctor;
pub(crate) mod healthcheck;
pub(crate) mod keys;
pub(crate) mod secrets;
pub(crate) mod users;
