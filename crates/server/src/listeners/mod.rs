//! The listeners of the service: for clients, for callbacks of sandboxes, and for metrics.

pub(crate) mod callback;
pub(crate) mod closable_stream;
pub(crate) mod connections;
pub(crate) mod http_server;
pub(crate) mod malformed_log;
