//! What the use-cases run on: background work, metrics, traces, limits and live settings.

pub mod background;
pub(crate) mod hosts;
pub(crate) mod housekeeping;
pub mod idempotency;
pub mod keyed_semaphore;
pub(crate) mod known_hosts;
pub(crate) mod lease;
pub(crate) mod live_setting;
pub mod master_key_rotation;
pub(crate) mod metrics;
pub mod tasks;
pub mod trace;
pub(crate) mod user_slots;

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

/// Ticks at once and then at this interval. A late tick delays the later ones.
pub(crate) fn ticker(interval: Duration) -> Interval {
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
