//! How many questions are asked of sandboxes at once: an answer takes memory, and a sandbox may take its time on purpose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use domain::error::ErrorClass;
use domain::id::SandboxId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::AppError;

/// Questions under way in this process.
const MOST: usize = 32;
/// Of these, to one sandbox.
const MOST_OF_SANDBOX: usize = 4;
/// Questions to one sandbox that are under way or wait.
const MOST_WAITING: usize = 64;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(15);

/// The turns of this process.
#[derive(Clone)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    sandboxes: Arc<Mutex<HashMap<SandboxId, Weak<Semaphore>>>>,
}

/// One turn, until it is dropped.
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MOST)),
            sandboxes: Arc::default(),
        }
    }
}

impl Places {
    /// Waits for a turn, first for one of the sandbox's own, so that one that hangs keeps nobody else waiting for long.
    pub(super) async fn take(&self, sandbox: &SandboxId) -> Result<Place, AppError> {
        let own = self.of(sandbox);
        // Whoever has a turn or waits for one holds the semaphore.
        if Arc::strong_count(&own) > MOST_WAITING {
            return Err(busy());
        }
        let turn = async {
            let own = own.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Place {
                _own: own,
                _all: all,
            })
        };
        let turn = tokio::time::timeout(PATIENCE, turn).await;
        turn.ok().flatten().ok_or_else(busy)
    }

    fn of(&self, sandbox: &SandboxId) -> Arc<Semaphore> {
        let mut sandboxes = self
            .sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = sandboxes.get(sandbox).and_then(Weak::upgrade) {
            return own;
        }
        sandboxes.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(MOST_OF_SANDBOX));
        sandboxes.insert(sandbox.clone(), Arc::downgrade(&own));
        own
    }
}

fn busy() -> AppError {
    AppError::refused(
        ErrorClass::Unavailable,
        "Too many questions to sandboxes are under way. Try again.",
    )
}

#[cfg(test)]
mod tests {
    use domain::error::Classify as _;

    use super::*;

    fn sandbox(id: &str) -> SandboxId {
        SandboxId::parse(id).expect("an id")
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_that_hangs_keeps_its_own_questions_waiting_and_no_others() {
        let places = Places::default();
        let mut held = Vec::new();
        for _ in 0..MOST_OF_SANDBOX {
            held.push(places.take(&sandbox("a")).await.expect("a turn"));
        }
        let refused = places.take(&sandbox("a")).await.err().expect("no turn");
        assert_eq!(refused.class(), ErrorClass::Unavailable);
        let other = places.take(&sandbox("b")).await;
        assert!(other.is_ok(), "another sandbox is asked");
        held.pop();
        assert!(places.take(&sandbox("a")).await.is_ok(), "a turn again");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait_and_nothing_is_kept_of_those_that_went() {
        let places = Places::default();
        let a = sandbox("a");
        let waiting = (0..MOST_WAITING + 5).map(|_| async {
            let turn = places.take(&a).await;
            tokio::time::sleep(PATIENCE * 2).await;
            turn.is_ok()
        });
        let ended = futures::future::join_all(waiting).await;
        let served = ended.into_iter().filter(|is_ok| *is_ok).count();
        assert_eq!(served, MOST_OF_SANDBOX);
        let _other = places.take(&sandbox("b")).await.expect("a turn");
        let kept = places.sandboxes.lock().expect("no panic").len();
        assert_eq!(kept, 1, "only the one that is asked now");
    }
}
