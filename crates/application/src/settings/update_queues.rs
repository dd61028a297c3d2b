//! Turns at changing one user's settings: first come, first served in this process, and fair towards other replicas.
//!
//! Replicas know nothing of each other's queues; a save only finds out that somebody else was faster. Whoever saves one
//! change right after the other would therefore keep a slower replica out for as long as its own queue lasts: the other's
//! reading and saving never fits between two commits. So there is a gap between two turns at the same settings, about as
//! long as a turn takes and of random length, and a change that was beaten waits about as long before it reads again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::UserId;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Changes of one user that wait. Each waits with its request, and at the end all of them are too late.
const MAX_WAITING_UPDATES: usize = 100;
/// From this many queues on those that are of no use any more are taken away.
const SWEEP_THRESHOLD_QUEUES: usize = 64;
/// Bounds of a gap.
const GAP_BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The queues of this process, one for each user who changes something at this moment: nobody waits for anybody else.
#[derive(Clone, Default)]
pub(super) struct UpdateQueues(Arc<Mutex<HashMap<UserId, UserQueue>>>);

/// First come, first served. As many share it as have their turn or wait for it, and the map.
type UserQueue = Arc<tokio::sync::Mutex<NextStart>>;

/// When the next turn may begin; `None` before the first one.
type NextStart = Option<Instant>;

/// The right to change; given back when dropped.
pub(super) struct UpdatePermit {
    free: OwnedMutexGuard<NextStart>,
    began: Instant,
}

/// Too many wait already.
#[derive(Debug)]
pub(super) struct QueueFull;

impl UpdateQueues {
    /// Waits for a turn at the settings of this user.
    pub(super) async fn acquire(&self, owner: &UserId) -> Result<UpdatePermit, QueueFull> {
        let free = self.queue(owner)?.lock_owned().await;
        if let Some(at) = *free {
            tokio::time::sleep_until(at).await;
        }
        let began = Instant::now();
        Ok(UpdatePermit { free, began })
    }

    fn queue(&self, owner: &UserId) -> Result<UserQueue, QueueFull> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= SWEEP_THRESHOLD_QUEUES {
            let now = Instant::now();
            // Whoever comes is given a queue under this lock only, so one that nobody shares stays so. One whose gap is
            // not over is of use still.
            queues.retain(|_, queue| {
                Arc::strong_count(queue) > 1
                    || queue
                        .try_lock()
                        .map_or(true, |free| free.is_some_and(|at| at > now))
            });
        }
        let queue = queues.entry(owner.clone()).or_default();
        if Arc::strong_count(queue) > MAX_WAITING_UPDATES {
            return Err(QueueFull);
        }
        Ok(Arc::clone(queue))
    }
}

impl UpdatePermit {
    /// Another replica was faster: waits before the next attempt.
    pub(super) async fn back_off(&mut self) {
        tokio::time::sleep(gap(self.began.elapsed())).await;
        self.began = Instant::now();
    }
}

impl Drop for UpdatePermit {
    fn drop(&mut self) {
        *self.free = Some(Instant::now() + gap(self.began.elapsed()));
    }
}

/// Between half and one and a half times as long as an attempt took.
fn gap(took: Duration) -> Duration {
    // Differs from call to call: every state has keys of its own.
    let dice = RandomState::new().hash_one(0_u8) % 1024;
    let percent = 50 + u32::try_from(dice * 100 / 1024).unwrap_or(0);
    (took.clamp(GAP_BOUNDS[0], GAP_BOUNDS[1]) * percent / 100).min(GAP_BOUNDS[1])
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
        assert!(gap(Duration::from_secs(60)) <= GAP_BOUNDS[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_some_time_before_the_next_one_begins() {
        let turns = UpdateQueues::default();
        let turn = turns.acquire(&ada()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(turn);
        let ended = Instant::now();
        let _turn = turns.acquire(&ada()).await.unwrap();
        assert!(
            ended.elapsed() >= Duration::from_millis(10),
            "{:?}",
            ended.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_the_queue_of_somebody_else() {
        let turns = UpdateQueues::default();
        let _held = turns.acquire(&ada()).await.unwrap();
        for n in 0..1_000 {
            let other = UserId::parse(format!("user-{n}")).unwrap();
            let turn = tokio::time::timeout(Duration::from_secs(1), turns.acquire(&other));
            drop(turn.await.expect("no waiting").unwrap());
            tokio::time::advance(GAP_BOUNDS[1]).await;
        }
        let kept = turns.0.lock().unwrap().len();
        assert!(kept <= SWEEP_THRESHOLD_QUEUES, "{kept}");
        let ada = ada();
        let again = tokio::time::timeout(Duration::from_secs(1), turns.acquire(&ada));
        assert!(again.await.is_err(), "a turn that is taken stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_crowd_some_wait_and_the_others_are_refused_at_once() {
        let turns = UpdateQueues::default();
        let held = turns.acquire(&ada()).await.unwrap();
        let mut crowd = tokio::task::JoinSet::new();
        for _ in 0..2 * MAX_WAITING_UPDATES {
            let turns = turns.clone();
            crowd.spawn(async move { turns.acquire(&ada()).await.is_ok() });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut refused = 0;
        while let Some(done) = crowd.try_join_next() {
            refused += usize::from(!done.unwrap());
        }
        assert!(
            (MAX_WAITING_UPDATES..=MAX_WAITING_UPDATES + 2).contains(&refused),
            "{refused}"
        );
        drop(held);
        let rest = crowd.join_all().await;
        let served = rest.into_iter().filter(|done| *done).count();
        assert_eq!(served, 2 * MAX_WAITING_UPDATES - refused);
    }
}
