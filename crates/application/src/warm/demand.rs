//! The target size of the warm pool.

use std::time::Duration;

use tokio::time::Instant;

/// Time constant of the arrival rate: older arrivals count less and less.
const SMOOTHING_INTERVAL: Duration = Duration::from_secs(120);
const INITIAL_BOOT_ESTIMATE: Duration = Duration::from_secs(8);
const LATEST_BOOT_WEIGHT: f64 = 0.3;
/// Largest multiple of its configured size that the pool grows to.
const MAX_GROWTH_FACTOR: u32 = 2;

/// Arrival rate of starts and mean boot time.
#[derive(Debug, Clone)]
pub(super) struct WarmDemand {
    /// Arrivals per second, as of `at`.
    rate: f64,
    at: Instant,
    boot: Duration,
}

impl Default for WarmDemand {
    fn default() -> Self {
        Self {
            rate: 0.0,
            at: Instant::now(),
            boot: INITIAL_BOOT_ESTIMATE,
        }
    }
}

impl WarmDemand {
    pub(super) fn record_arrival(&mut self, now: Instant) {
        self.rate = self.rate(now) + 1.0 / SMOOTHING_INTERVAL.as_secs_f64();
        self.at = now;
    }

    pub(super) fn record_boot(&mut self, took: Duration) {
        self.boot = self.boot.mul_f64(1.0 - LATEST_BOOT_WEIGHT) + took.mul_f64(LATEST_BOOT_WEIGHT);
    }

    fn rate(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.rate * (-age / SMOOTHING_INTERVAL.as_secs_f64()).exp()
    }

    /// Mean number of starts during one boot.
    fn arrivals_per_boot(&self, now: Instant) -> f64 {
        self.rate(now) * self.boot.as_secs_f64()
    }

    /// The target size: at least `kept`; more while more starts arrive during one boot (plus one standard deviation),
    /// at most twice as many; never more than `room`, so that warm and running sandboxes together stay within the cap
    /// of the installation.
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

/// On a shared host, warm sandboxes that other processes may want stay for this time: those may see more demand, or
/// have another version.
pub(super) const REPLICA_GRACE: Duration = Duration::from_secs(600);

/// Backoff after consecutive failed boots.
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

    /// The demand after `arrivals` starts, evenly over `over` seconds, and the moment of the last.
    fn after(arrivals: u32, over: u64, boot: u64) -> (WarmDemand, Instant) {
        let first = Instant::now();
        let mut demand = WarmDemand::default();
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
    fn the_target_follows_demand_up_to_twice_the_configured_size() {
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
            assert!(target <= before, "it only falls without arrivals");
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
