//! Limits of parallel inspections: each response takes memory, and a sandbox may delay its response on purpose.

use std::sync::Arc;
use std::time::Duration;

use domain::error::ErrorClass;
use domain::id::{OwnerId, SandboxId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::AppError;
use crate::keyed_semaphore::{KeyedPermit, KeyedSemaphore};

const MAX_INSPECTIONS: usize = 32;
const MAX_INSPECTIONS_PER_USER: usize = 8;
const MAX_INSPECTIONS_PER_SANDBOX: usize = 4;
/// Inspections of one sandbox, running and waiting.
const MAX_WAITING_PER_SANDBOX: usize = 64;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(super) struct InspectionLimiter {
    all: Arc<Semaphore>,
    users: Arc<KeyedSemaphore<OwnerId>>,
    sandboxes: Arc<KeyedSemaphore<SandboxId>>,
}

pub(super) struct InspectionPermit {
    _sandbox: KeyedPermit,
    _user: KeyedPermit,
    _all: OwnedSemaphorePermit,
}

impl Default for InspectionLimiter {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_INSPECTIONS)),
            // The number of waiting requests is bounded by the user's sandboxes, which are few.
            users: Arc::new(KeyedSemaphore::new(MAX_INSPECTIONS_PER_USER, usize::MAX)),
            sandboxes: Arc::new(KeyedSemaphore::new(
                MAX_INSPECTIONS_PER_SANDBOX,
                MAX_WAITING_PER_SANDBOX,
            )),
        }
    }
}

impl InspectionLimiter {
    /// Waits for permits of the sandbox, then of its owner, then of the process. So a sandbox that hangs, or all of a
    /// user's, delay others only briefly.
    pub(super) async fn acquire(
        &self,
        owner: &OwnerId,
        sandbox: &SandboxId,
    ) -> Result<InspectionPermit, AppError> {
        let turn = async {
            Some(InspectionPermit {
                _sandbox: self.sandboxes.acquire(sandbox).await?,
                _user: self.users.acquire(owner).await?,
                _all: Arc::clone(&self.all).acquire_owned().await.ok()?,
            })
        };
        let turn = tokio::time::timeout(PERMIT_TIMEOUT, turn).await;
        turn.ok().flatten().ok_or_else(busy)
    }
}

fn busy() -> AppError {
    AppError::refused(
        ErrorClass::Unavailable,
        "Too many requests to sandboxes are running. Try again.",
    )
}

#[cfg(test)]
mod tests {
    use domain::error::Classify as _;

    use super::*;

    fn sandbox(id: &str) -> SandboxId {
        SandboxId::parse(id).expect("an id")
    }

    fn user(name: &str) -> OwnerId {
        OwnerId::parse(name).expect("a name")
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_sandbox_delays_only_its_own_requests() {
        let (limiter, ada) = (InspectionLimiter::default(), user("ada"));
        let mut held = Vec::new();
        for _ in 0..MAX_INSPECTIONS_PER_SANDBOX {
            held.push(limiter.acquire(&ada, &sandbox("a")).await.expect("a turn"));
        }
        let refused = limiter.acquire(&ada, &sandbox("a")).await.err();
        assert_eq!(refused.expect("no turn").class(), ErrorClass::Unavailable);
        let other = limiter.acquire(&ada, &sandbox("b")).await;
        assert!(other.is_ok(), "another sandbox is asked");
        held.pop();
        assert!(
            limiter.acquire(&ada, &sandbox("a")).await.is_ok(),
            "a turn again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_with_hanging_sandboxes_delays_no_other_user() {
        let limiter = InspectionLimiter::default();
        let mut held = Vec::new();
        for n in 0..MAX_INSPECTIONS {
            let one = sandbox(&format!("a{n}"));
            held.extend(limiter.acquire(&user("ada"), &one).await);
        }
        assert_eq!(held.len(), MAX_INSPECTIONS_PER_USER);
        let other = limiter.acquire(&user("bob"), &sandbox("b")).await;
        assert!(other.is_ok(), "another user's is asked");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_limited_and_leave_nothing_behind() {
        let (limiter, ada) = (InspectionLimiter::default(), user("ada"));
        let a = sandbox("a");
        let waiting = (0..MAX_WAITING_PER_SANDBOX + 5).map(|_| async {
            let turn = limiter.acquire(&ada, &a).await;
            tokio::time::sleep(PERMIT_TIMEOUT * 2).await;
            turn.is_ok()
        });
        let ended = futures::future::join_all(waiting).await;
        let served = ended.into_iter().filter(|is_ok| *is_ok).count();
        assert_eq!(served, MAX_INSPECTIONS_PER_SANDBOX);
        let other = limiter.acquire(&user("bob"), &sandbox("b")).await;
        let _other = other.expect("a turn");
        let kept = (limiter.sandboxes.len(), limiter.users.len());
        assert_eq!(kept, (1, 1), "only the one that is asked now");
    }
}
