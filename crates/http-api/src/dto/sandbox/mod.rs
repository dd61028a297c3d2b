//! Sandboxes, their specs and the warm pool on the wire.

pub(crate) mod egress_request;
pub(crate) mod envelope;
pub(crate) mod host;
pub(crate) mod record;
pub(crate) mod spec;
pub(crate) mod warm_pool;
