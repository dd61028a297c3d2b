//! The life of the service process: first key, start, reload and shutdown.

pub(crate) mod automations;
pub(crate) mod banner;
pub(crate) mod bootstrap;
pub(crate) mod first_link;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod service_manager;
pub(crate) mod shutdown;
