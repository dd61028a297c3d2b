//! Starts, stops and observes sandboxes.

mod create;
pub(crate) mod observe;
pub(crate) mod ownership;
pub(crate) mod start;
pub(crate) mod state_cache;
mod stop;
