//! Starts, stops, observes and monitors sandboxes.

mod disk;
mod fork_server;
pub(crate) mod monitor;
pub(crate) mod observe;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod tracked;
