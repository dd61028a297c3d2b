//! Commands that work directly on the configuration and the store, without a running service.

pub(crate) mod doctor;
pub(crate) mod healthcheck;
pub(crate) mod keys;
pub(crate) mod secrets;
pub(crate) mod users;
