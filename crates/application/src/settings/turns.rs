//! Turns at changing one user's settings: first come, first served in this process, and fair towards other replicas.
//!
//! Replicas know nothing of each other's queues; a save only finds out that somebody else was faster. Whoever saves one
//! change right after the other would therefore keep a slower replica out for as long as its own queue lasts: the other's
//! reading and saving never fits between two commits. So there is a gap between two turns at the same settings, about as
//! long as a turn takes and of random length, and a change that was beaten waits about as long before it reads again.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use domain::id::UserId;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Queues for changes. Users that share one only wait for each other.
const QUEUES: usize = 64;
/// Bounds of a gap.
const GAP: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The queues of this process.
#[derive(Clone)]
pub(super) struct Turns(Arc<[Mutex<Free>]>);

/// When the next turn may begin; `None` before the first one.
type Free = Option<Instant>;

/// The right to change; given back when dropped.
pub(super) struct Turn<'a> {
    free: MutexGuard<'a, Free>,
    began: Instant,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self((0..QUEUES).map(|_| Mutex::new(None)).collect())
    }

    /// Waits for a turn at the settings of this user.
    pub(super) async fn take(&self, owner: &UserId) -> Turn<'_> {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let slot = usize::try_from(hasher.finish() % QUEUES as u64).unwrap_or(0);
        let free = self.0[slot].lock().await;
        if let Some(at) = *free {
            tokio::time::sleep_until(at).await;
        }
        let began = Instant::now();
        Turn { free, began }
    }
}

impl Turn<'_> {
    /// Another replica was faster: waits before the next attempt.
    pub(super) async fn was_beaten(&mut self) {
        tokio::time::sleep(gap(self.began.elapsed())).await;
        self.began = Instant::now();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.free = Some(Instant::now() + gap(self.began.elapsed()));
    }
}

/// Between half and one and a half times as long as an attempt took.
fn gap(took: Duration) -> Duration {
    // Differs from call to call: every state has keys of its own.
    let dice = RandomState::new().hash_one(0_u8) % 1024;
    let percent = 50 + u32::try_from(dice * 100 / 1024).unwrap_or(0);
    (took.clamp(GAP[0], GAP[1]) * percent / 100).min(GAP[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> UserId {
        UserId::parse("ada").unwrap()
    }

    #[test]
    fn gaps_are_bounded_and_differ() {
        let took = Duration::from_millis(10);
        let gaps: Vec<Duration> = (0..100).map(|_| gap(took)).collect();
        assert!(
            gaps.iter()
                .all(|gap| *gap >= took / 2 && *gap < took * 3 / 2)
        );
        assert!(gaps.iter().any(|gap| *gap < took) && gaps.iter().any(|gap| *gap > took));
        assert!(gap(Duration::ZERO) > Duration::ZERO);
        assert!(gap(Duration::from_secs(60)) <= GAP[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_some_time_before_the_next_one_begins() {
        let turns = Turns::new();
        let turn = turns.take(&ada()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(turn);
        let ended = Instant::now();
        let _turn = turns.take(&ada()).await;
        assert!(
            ended.elapsed() >= Duration::from_millis(10),
            "{:?}",
            ended.elapsed()
        );
    }
}
