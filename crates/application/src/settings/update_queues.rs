//! Queues of changes to one document of settings: first come, first served in this process, and fair to other replicas.
//!
//! Replicas do not know each other's queues; a save only shows that another one was faster. Without gaps a long queue
//! in one replica would shut out a slower one, whose read and save never fit between two commits. So each change is
//! followed by a gap of random length, about as long as the change took, and a change that lost waits as long before
//! it reads again.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use domain::user::settings::SettingsOwner;
use moka::sync::Cache;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Waiting changes of one document. Each occupies a request, and the last ones would time out.
const MAX_WAITING_UPDATES: usize = 100;
/// After this time without a change the queue of a document is removed. No change holds or waits for a queue that long.
const QUEUE_TTL: Duration = Duration::from_secs(120);
/// Bounds of a gap.
const GAP_BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The queues of this process, one per document with a change, so that users do not wait for each other.
#[derive(Clone)]
pub(super) struct UpdateQueues(Cache<SettingsOwner, UserQueue>);

impl Default for UpdateQueues {
    fn default() -> Self {
        Self(Cache::builder().time_to_idle(QUEUE_TTL).build())
    }
}

/// First come, first served. The references are those of the cache, the running change and the waiting ones.
type UserQueue = Arc<tokio::sync::Mutex<NextStart>>;

/// When the next change may begin; `None` before the first.
type NextStart = Option<Instant>;

/// The right to change the settings, released when dropped.
pub(super) struct UpdatePermit {
    next_start: OwnedMutexGuard<NextStart>,
    began: Instant,
}

#[derive(Debug)]
pub(super) struct QueueFull;

impl UpdateQueues {
    /// Waits for the right to change these settings.
    pub(super) async fn acquire(&self, owner: &SettingsOwner) -> Result<UpdatePermit, QueueFull> {
        let next_start = self.queue(owner)?.lock_owned().await;
        if let Some(at) = *next_start {
            tokio::time::sleep_until(at).await;
        }
        let began = Instant::now();
        Ok(UpdatePermit { next_start, began })
    }

    fn queue(&self, owner: &SettingsOwner) -> Result<UserQueue, QueueFull> {
        let queue = self.0.get_with_by_ref(owner, UserQueue::default);
        // The cache and this change hold a reference each.
        if Arc::strong_count(&queue) > MAX_WAITING_UPDATES + 1 {
            return Err(QueueFull);
        }
        Ok(queue)
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
        *self.next_start = Some(Instant::now() + gap(self.began.elapsed()));
    }
}

/// Between half and one and a half times the length of an attempt.
fn gap(took: Duration) -> Duration {
    // Random: each `RandomState` has its own keys.
    let random = RandomState::new().hash_one(0_u8) % 1024;
    let percent = 50 + u32::try_from(random * 100 / 1024).unwrap_or(0);
    (took.clamp(GAP_BOUNDS[0], GAP_BOUNDS[1]) * percent / 100).min(GAP_BOUNDS[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> SettingsOwner {
        "ada".parse().unwrap()
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
    async fn there_is_a_gap_between_two_changes() {
        let queues = UpdateQueues::default();
        let permit = queues.acquire(&ada()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(permit);
        let ended = Instant::now();
        let _turn = queues.acquire(&ada()).await.unwrap();
        assert!(
            ended.elapsed() >= Duration::from_millis(10),
            "{:?}",
            ended.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn users_do_not_wait_for_each_other() {
        let queues = UpdateQueues::default();
        let _held = queues.acquire(&ada()).await.unwrap();
        for n in 0..1_000 {
            let other = format!("user-{n}").parse().unwrap();
            let permit = tokio::time::timeout(Duration::from_secs(1), queues.acquire(&other));
            drop(permit.await.expect("no waiting").unwrap());
            tokio::time::advance(GAP_BOUNDS[1]).await;
        }
        let ada = ada();
        let again = tokio::time::timeout(Duration::from_secs(1), queues.acquire(&ada));
        assert!(again.await.is_err(), "a permit that is taken stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_above_the_limit_are_refused_at_once() {
        let queues = UpdateQueues::default();
        let held = queues.acquire(&ada()).await.unwrap();
        let mut changes = tokio::task::JoinSet::new();
        for _ in 0..2 * MAX_WAITING_UPDATES {
            let queues = queues.clone();
            changes.spawn(async move { queues.acquire(&ada()).await.is_ok() });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut refused = 0;
        while let Some(done) = changes.try_join_next() {
            refused += usize::from(!done.unwrap());
        }
        assert!(
            (MAX_WAITING_UPDATES..=MAX_WAITING_UPDATES + 2).contains(&refused),
            "{refused}"
        );
        drop(held);
        let rest = changes.join_all().await;
        let served = rest.into_iter().filter(|done| *done).count();
        assert_eq!(served, 2 * MAX_WAITING_UPDATES - refused);
    }
}
