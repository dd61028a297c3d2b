//! Sandboxes for runs of automations. At a cap a run waits for the end of another one; a person would be refused at once.
//!
//! The automations service asks again every few seconds, so a run waits without a request that a restart of either service could
//! cut off. It skips a run whose request is refused in a certain form, and asks again after any other refusal at a cap.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::error::{Classify as _, ErrorClass};
use domain::id::{ApiKeyId, OwnerId};
use domain::sandbox::Sandbox;
use tokio::time::Instant;

use super::SandboxService;
use crate::AppError;
use crate::automation_keys::MAX_RUN_WAIT;
use crate::runtime::idempotency::{IdempotentCall, IdempotentResult};

/// A run that has not asked for this long waits no more. The automations service asks every 15 seconds.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Runs of one owner that take free places, those that have waited longest. Each alone would leave a place free until it asks.
const CANDIDATES: usize = 16;
/// Runs that wait. More are refused, and ask again.
const MAX_WAITING: usize = 10_000;

/// Runs that wait for a sandbox, the oldest first. A restart of this service forgets them until they ask again.
#[derive(Clone, Default)]
pub(super) struct RunQueue(Arc<Mutex<Vec<WaitingRun>>>);

struct WaitingRun {
    owner: OwnerId,
    /// The key that the service issued for the run.
    run: ApiKeyId,
    since: Instant,
    asked_at: Instant,
}

/// Why a run gets no sandbox.
#[derive(Debug)]
pub enum RunRefusal {
    /// A cap is reached, or the database is away. The automations service asks again, and the run keeps its place.
    Busy(AppError),
    /// A cap was reached for the whole time that a run waits: it is skipped.
    Skipped(AppError),
    Failed(AppError),
}

impl RunQueue {
    /// Adds the run unless it waits already. Returns how many runs of the owner are before it, and how long it has waited.
    fn enter(&self, owner: &OwnerId, run: ApiKeyId) -> (usize, Duration) {
        let now = Instant::now();
        self.with(|waiting| {
            waiting.retain(|it| now - it.asked_at < STALE_AFTER);
            let of_owner = waiting.iter_mut().filter(|it| it.owner == *owner);
            let mut before = 0;
            for other in of_owner {
                if other.run == run {
                    other.asked_at = now;
                    return (before, now - other.since);
                }
                before += 1;
            }
            if waiting.len() < MAX_WAITING {
                waiting.push(WaitingRun {
                    owner: owner.clone(),
                    run,
                    since: now,
                    asked_at: now,
                });
            }
            (before, Duration::ZERO)
        })
    }

    fn leave(&self, run: ApiKeyId) {
        self.with(|waiting| waiting.retain(|it| it.run != run));
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<WaitingRun>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SandboxService {
    /// Starts the sandbox of a run, for which the automations service has this key, unless older runs of the owner wait. The
    /// call makes a repeated request start nothing: its first answer may be lost, as where the database goes away.
    pub async fn start_for_run(
        &self,
        owner: &OwnerId,
        spec: Option<&str>,
        run: ApiKeyId,
        call: &IdempotentCall<'_, Sandbox>,
    ) -> Result<IdempotentResult<Sandbox>, RunRefusal> {
        let (before, waited) = self.runs.enter(owner, run);
        let started = if before < CANDIDATES {
            self.start_row(owner, spec, Some(run), Some(call)).await
        } else {
            let detail = format!("{before} runs of this user wait for a sandbox before this one");
            Err(AppError::refused(ErrorClass::RateLimited, detail))
        };
        match started {
            Err(error)
                if waited < MAX_RUN_WAIT
                    && matches!(
                        error.class(),
                        ErrorClass::RateLimited | ErrorClass::Unavailable
                    ) =>
            {
                Err(RunRefusal::Busy(error))
            }
            ended => {
                self.runs.leave(run);
                ended.map_err(|error| match error.class() {
                    ErrorClass::RateLimited => RunRefusal::Skipped(error),
                    _ => RunRefusal::Failed(error),
                })
            }
        }
    }
}
