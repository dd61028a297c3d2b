//! How many questions are asked of sandboxes at once: an answer takes memory, and a sandbox may take its time on purpose.

use std::sync::Arc;
use std::time::Duration;

use domain::error::ErrorClass;
use domain::id::{SandboxId, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::AppError;
use crate::turns::{Turn, Turns};

/// Questions under way in this process.
const MOST: usize = 32;
/// Of these, to the sandboxes of one user, and to one sandbox.
const MOST_OF_USER: usize = 8;
const MOST_OF_SANDBOX: usize = 4;
/// Questions to one sandbox that are under way or wait.
const MOST_WAITING: usize = 64;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(15);

/// The turns of this process.
#[derive(Clone)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    users: Arc<Turns<UserId>>,
    sandboxes: Arc<Turns<SandboxId>>,
}

/// One turn, until it is dropped.
pub(super) struct Place {
    _sandbox: Turn,
    _user: Turn,
    _all: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MOST)),
            // How many wait is bounded by their sandboxes, which are few.
            users: Arc::new(Turns::new(MOST_OF_USER, usize::MAX)),
            sandboxes: Arc::new(Turns::new(MOST_OF_SANDBOX, MOST_WAITING)),
        }
    }
}

impl Places {
    /// Waits for a turn, first for one of the sandbox's own and its owner's, so that one that hangs, or all of a user's, keep
    /// nobody else waiting for long.
    pub(super) async fn take(
        &self,
        owner: &UserId,
        sandbox: &SandboxId,
    ) -> Result<Place, AppError> {
        let turn = async {
            Some(Place {
                _sandbox: self.sandboxes.take(sandbox).await?,
                _user: self.users.take(owner).await?,
                _all: Arc::clone(&self.all).acquire_owned().await.ok()?,
            })
        };
        let turn = tokio::time::timeout(PATIENCE, turn).await;
        turn.ok().flatten().ok_or_else(busy)
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

    fn user(name: &str) -> UserId {
        UserId::parse(name).expect("a name")
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_that_hangs_keeps_its_own_questions_waiting_and_no_others() {
        let (places, ada) = (Places::default(), user("ada"));
        let mut held = Vec::new();
        for _ in 0..MOST_OF_SANDBOX {
            held.push(places.take(&ada, &sandbox("a")).await.expect("a turn"));
        }
        let refused = places.take(&ada, &sandbox("a")).await.err();
        assert_eq!(refused.expect("no turn").class(), ErrorClass::Unavailable);
        let other = places.take(&ada, &sandbox("b")).await;
        assert!(other.is_ok(), "another sandbox is asked");
        held.pop();
        assert!(
            places.take(&ada, &sandbox("a")).await.is_ok(),
            "a turn again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_all_of_whose_sandboxes_hang_keeps_nobody_else_waiting() {
        let places = Places::default();
        let mut held = Vec::new();
        for n in 0..MOST {
            let one = sandbox(&format!("a{n}"));
            held.extend(places.take(&user("ada"), &one).await);
        }
        assert_eq!(held.len(), MOST_OF_USER);
        let other = places.take(&user("bob"), &sandbox("b")).await;
        assert!(other.is_ok(), "another user's is asked");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait_and_nothing_is_kept_of_those_that_went() {
        let (places, ada) = (Places::default(), user("ada"));
        let a = sandbox("a");
        let waiting = (0..MOST_WAITING + 5).map(|_| async {
            let turn = places.take(&ada, &a).await;
            tokio::time::sleep(PATIENCE * 2).await;
            turn.is_ok()
        });
        let ended = futures::future::join_all(waiting).await;
        let served = ended.into_iter().filter(|is_ok| *is_ok).count();
        assert_eq!(served, MOST_OF_SANDBOX);
        let other = places.take(&user("bob"), &sandbox("b")).await;
        let _other = other.expect("a turn");
        let kept = (places.sandboxes.kept(), places.users.kept());
        assert_eq!(kept, (1, 1), "only the one that is asked now");
    }
}
