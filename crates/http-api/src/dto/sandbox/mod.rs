//! Sandboxes, their specs and the warm pool on the wire.

pub mod record;
pub mod spec;
pub mod warm_pool;
