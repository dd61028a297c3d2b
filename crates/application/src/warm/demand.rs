//! How many sandboxes are kept warm.

use std::time::Duration;

use tokio::time::Instant;

/// Over this time arrivals are smoothed: what came a while ago counts for less and less.
const SMOOTHING_INTERVAL: Duration = Duration::from_secs(120);
/// What a boot is thought to take before one was seen.
const INITIAL_BOOT_ESTIMATE: Duration = Duration::from_secs(8);
/// The share of the last boot in the mean.
const LATEST_BOOT_WEIGHT: f64 = 0.3;
/// By demand the pool grows to so many times its size, and no further.
const MAX_GROWTH_FACTOR: u32 = 2;

/// How fast sandboxes are asked for, and how long one takes to boot.
#[derive(Debug, Clone)]
pub(super) struct WarmDemand {
    /// A second, as of `at`.
    rate: f64,
    at: Instant,
    boot: Duration,
}

impl WarmDemand {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rate: 0.0,
            at: now,
            boot: INITIAL_BOOT_ESTIMATE,
        }
    }

    /// Somebody asked for one.
    pub(super) fn record_arrival(&mut self, now: Instant) {
        self.rate = self.rate(now) + 1.0 / SMOOTHING_INTERVAL.as_secs_f64();
        self.at = now;
    }

    /// One booted, in this time.
    pub(super) fn record_boot(&mut self, took: Duration) {
        self.boot = self.boot.mul_f64(1.0 - LATEST_BOOT_WEIGHT) + took.mul_f64(LATEST_BOOT_WEIGHT);
    }

    fn rate(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.rate * (-age / SMOOTHING_INTERVAL.as_secs_f64()).exp()
    }

    /// How many are asked for while one boots, on average.
    fn arrivals_per_boot(&self, now: Instant) -> f64 {
        self.rate(now) * self.boot.as_secs_f64()
    }

    /// How many to keep: `kept` always; more while more than that are asked for during one boot (and half as many again as
    /// happens by chance, a standard deviation), at most twice as many; never more than there is `room` for under the cap of
    /// the installation, so that warm and running ones together stay within it.
    pub(super) fn target(&self, kept: u32, room: u32, now: Instant) -> u32 {
        if kept == 0 {
            return 0;
        }
        let arrivals_per_boot = self.arrivals_per_boot(now);
        let wanted = (arrivals_per_boot + arrivals_per_boot.sqrt()).ceil();
        let most = kept.saturating_mul(MAX_GROWTH_FACTOR);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float becomes the nearest whole number that fits"
        )]
        let wanted = (wanted as u32).clamp(kept, most);
        wanted.min(room)
    }
}

/// On a shared host, what others that serve it may want is left to them for so long: they may know of more demand, or be of
/// another version.
pub(super) const REPLICA_GRACE: Duration = Duration::from_secs(600);

/// How long nothing is booted after so many failures in a row.
pub(super) fn boot_backoff(failures: u32) -> Duration {
    const MIN_BACKOFF: Duration = Duration::from_secs(10);
    const MAX_BACKOFF: Duration = Duration::from_secs(600);
    MIN_BACKOFF
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// After so many arrivals, evenly over so many seconds; and the moment of the last.
    fn after(arrivals: u32, over: u64, boot: u64) -> (WarmDemand, Instant) {
        let first = Instant::now();
        let mut demand = WarmDemand::new(first);
        for _ in 0..100 {
            demand.record_boot(seconds(boot));
        }
        let mut now = first;
        for n in 1..=arrivals {
            now = first + seconds(over) * n / arrivals;
            demand.record_arrival(now);
        }
        (demand, now)
    }

    #[test]
    fn it_follows_demand_between_what_is_configured_and_twice_that() {
        for (kept, room, (arrivals, over, boot), expected) in [
            (0, 50, (100, 10, 8), 0),
            (1, 50, (0, 0, 8), 1),
            (3, 50, (0, 0, 8), 3),
            (3, 50, (1, 1, 8), 3),
            // A burst of twenty: 1.3 of them during one boot, and 1.2 by chance.
            (1, 50, (20, 1, 8), 2),
            (2, 50, (20, 1, 8), 3),
            // One a second for ten minutes.
            (10, 50, (600, 600, 8), 11),
            (4, 50, (600, 600, 8), 8),
            (10, 50, (600, 600, 1), 10),
            // The cap of the installation leaves less.
            (4, 3, (600, 600, 8), 3),
            (4, 0, (600, 600, 8), 0),
        ] {
            let (demand, now) = after(arrivals, over, boot);
            let target = demand.target(kept, room, now);
            assert_eq!(
                target, expected,
                "keep {kept}, room {room}, {arrivals} in {over} s"
            );
        }
    }

    #[test]
    fn demand_is_forgotten() {
        let (demand, now) = after(600, 600, 8);
        let mut before = demand.target(4, 50, now);
        for minute in 1..=20 {
            let target = demand.target(4, 50, now + seconds(60) * minute);
            assert!(target <= before, "it only falls while nobody comes");
            before = target;
        }
        assert_eq!(before, 4);
    }

    #[test]
    fn failures_are_answered_with_longer_and_longer_pauses() {
        let pauses: Vec<u64> = (1..=8).map(|n| boot_backoff(n).as_secs()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(boot_backoff(u32::MAX).as_secs(), 600);
    }
}
