//! What the use-cases run on: background work, metrics, traces, limits and live settings.

pub mod background;
pub(crate) mod housekeeping;
pub mod idempotency;
pub mod keyed_semaphore;
pub(crate) mod live_setting;
pub(crate) mod metrics;
pub mod rotation;
pub mod tasks;
pub mod trace;
