//! The times at which the service was killed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of kills and recoveries: odd while the service is down or recovering.
#[derive(Debug, Default)]
pub(crate) struct KillClock(AtomicU64);

/// A moment at which the service was up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpStamp(u64);

impl KillClock {
    pub(crate) fn record_kill(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn record_recovery(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn stamp(&self) -> UpStamp {
        UpStamp(self.0.load(Ordering::SeqCst))
    }

    /// Whether the service has been up from this moment until now.
    pub(crate) fn up_since(&self, stamp: UpStamp) -> bool {
        stamp.0.is_multiple_of(2) && self.0.load(Ordering::SeqCst) == stamp.0
    }
}

#[test]
fn a_kill_and_its_recovery_are_no_time_of_being_up() {
    let clock = KillClock::default();
    let before = clock.stamp();
    assert!(clock.up_since(before));
    clock.record_kill();
    let during = clock.stamp();
    assert!(!clock.up_since(before) && !clock.up_since(during));
    clock.record_recovery();
    assert!(!clock.up_since(before) && !clock.up_since(during));
    assert!(clock.up_since(clock.stamp()));
}
