//! Starts, stops, observes and monitors sandboxes.

pub(crate) mod monitor;
pub(crate) mod observe;
pub(crate) mod start;
pub(crate) mod stop;
