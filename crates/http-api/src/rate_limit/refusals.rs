//! Refusals that are answered late.
//!
//! A client that repeats a refused request at once, over a thousand connections, keeps the workers busy with refusals
//! alone. Each held refusal keeps one connection waiting instead, which costs a timer.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum number of refusals that one sender is answered at once in a second; further ones are held.
pub(super) const MAX_PROMPT_REFUSALS_PER_SECOND: u64 = 50;
/// Refusals that are held at the same time: a quarter of the connections that are open by default. Further ones are
/// answered at once, so that held ones do not use up `http.max_connections`.
const MAX_HELD_REFUSALS: usize = 4_096;
/// A refusal is held for this long, and for up to `DELAY_SPREAD_MS` more: clients that were refused together come back
/// one after the other.
const MIN_DELAY_MS: u64 = 500;
const DELAY_SPREAD_MS: u64 = 1_000;
/// Successive multiples of it are far apart from each other modulo the spread (the golden ratio).
const DELAY_STEP_MS: u64 = 618;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    held: AtomicUsize,
    number: AtomicU64,
}

/// A refusal that is to be held. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldRefusal<'a> {
    refusals: &'a Refusals,
    delay: Duration,
}

impl Refusals {
    /// `None`: as many are held as may be.
    pub(super) fn hold(&self) -> Option<HeldRefusal<'_>> {
        let held = self.held.fetch_add(1, Ordering::Relaxed);
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let spread = number.wrapping_mul(DELAY_STEP_MS) % DELAY_SPREAD_MS;
        let refusal = HeldRefusal {
            refusals: self,
            delay: Duration::from_millis(MIN_DELAY_MS + spread),
        };
        (held < MAX_HELD_REFUSALS).then_some(refusal)
    }
}

impl HeldRefusal<'_> {
    /// Returns when the refusal may be answered.
    pub(crate) async fn wait(self) {
        tokio::time::sleep(self.delay).await;
    }
}

impl Drop for HeldRefusal<'_> {
    fn drop(&mut self) {
        self.refusals.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_refusals_are_bounded_and_spread() {
        let refusals = Refusals::default();
        let held: Vec<_> = (0..MAX_HELD_REFUSALS)
            .filter_map(|_| refusals.hold())
            .collect();
        assert_eq!(held.len(), MAX_HELD_REFUSALS);
        assert!(
            refusals.hold().is_none(),
            "one too many is answered at once"
        );
        let bounds = Duration::from_millis(500)..Duration::from_millis(1_500);
        assert!(held.iter().all(|it| bounds.contains(&it.delay)));
        // Of 100 in a row, no tenth of the spread gets more than twice its share.
        let mut tenths = [0; 10];
        for refusal in &held[..100] {
            let past = refusal.delay.as_millis() - 500;
            tenths[usize::try_from(past / 100).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| *count <= 20), "{tenths:?}");
        drop(held);
        assert!(refusals.hold().is_some());
    }
}
