//! Health, metrics, documentation and the web console.

pub(super) mod console;
pub(super) mod docs;
pub(super) mod health;
pub(super) mod metrics;
pub(super) mod sign_in;
