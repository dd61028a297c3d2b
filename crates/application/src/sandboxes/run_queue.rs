//! Sandboxes for runs of automations. At a cap a run waits for the end of another one; a person would be refused at once.
//!
//! The automations service asks five times for the sandbox of a run, 10 s apart, each time for up to a minute. It skips a run
//! whose request is refused in a certain form, and gives up on one whose last request is refused in another.

use std::sync::Arc;
use std::time::Duration;

use domain::error::{Classify as _, ErrorClass};
use domain::id::{ApiKeyId, OwnerId};
use domain::sandbox::Sandbox;
use moka::sync::Cache;
use tokio::time::{Instant, sleep, timeout_at};

use super::SandboxService;
use crate::AppError;
use crate::keyed_semaphore::KeyedSemaphore;
use crate::runtime::user_slots::UserSlots;

/// Requests of one owner that wait, and of all: the automations service has 100 connections for everything.
const MAX_WAITING_PER_OWNER: usize = 16;
const MAX_WAITING: usize = 64;
/// Less than the minute for which the automations service waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(50);
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const LAST_ATTEMPT: u32 = 5;
/// Longer than all attempts together.
const ATTEMPTS_TTL: Duration = Duration::from_secs(10 * 60);
const MAX_REMEMBERED_RUNS: u64 = 10_000;

/// Runs that wait for a sandbox. Each owner's have one after the other, in the order of their requests.
#[derive(Clone)]
pub(super) struct RunQueue {
    turns: Arc<KeyedSemaphore<OwnerId>>,
    waiting: UserSlots<ApiKeyId>,
    /// Refused requests, by the key that the service issued for the run.
    attempts: Cache<ApiKeyId, u32>,
}

/// Why a run gets no sandbox.
#[derive(Debug)]
pub enum RunRefusal {
    /// A cap is reached, and the service asks again.
    Busy(AppError),
    /// A cap was reached for some minutes: the run is skipped.
    Skipped(AppError),
    Failed(AppError),
}

impl Default for RunQueue {
    fn default() -> Self {
        Self {
            turns: Arc::new(KeyedSemaphore::new(1, MAX_WAITING_PER_OWNER)),
            waiting: UserSlots::new(MAX_WAITING_PER_OWNER, MAX_WAITING),
            attempts: Cache::builder()
                .max_capacity(MAX_REMEMBERED_RUNS)
                .time_to_live(ATTEMPTS_TTL)
                .build(),
        }
    }
}

impl RunQueue {
    /// The refusal of a request at a cap.
    fn refuse(&self, run: ApiKeyId, error: AppError) -> RunRefusal {
        if error.class() != ErrorClass::RateLimited {
            return RunRefusal::Failed(error);
        }
        let attempt = self.attempts.get(&run).unwrap_or_default() + 1;
        if attempt >= LAST_ATTEMPT {
            self.attempts.invalidate(&run);
            return RunRefusal::Skipped(error);
        }
        self.attempts.insert(run, attempt);
        RunRefusal::Busy(error)
    }
}

impl SandboxService {
    /// Starts the sandbox of a run, for which the automations service has this key. At a cap it waits for up to 50 seconds.
    pub async fn start_for_run(
        &self,
        owner: &OwnerId,
        spec: Option<&str>,
        run: ApiKeyId,
    ) -> Result<Sandbox, RunRefusal> {
        let started = self.start_in_turn(owner, spec, run).await;
        started.map_err(|error| self.runs.refuse(run, error))
    }

    async fn start_in_turn(
        &self,
        owner: &OwnerId,
        spec: Option<&str>,
        run: ApiKeyId,
    ) -> Result<Sandbox, AppError> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let start = async || {
            let started = self.start_row(owner, spec, Some(run), None).await;
            started?.into_new()
        };
        let Ok(_waiting) = self.runs.waiting.acquire(owner, run) else {
            return start().await;
        };
        let _turn = timeout_at(deadline, self.runs.turns.acquire(owner)).await;
        loop {
            match start().await {
                Err(error)
                    if error.class() == ErrorClass::RateLimited
                        && Instant::now() + RETRY_INTERVAL < deadline =>
                {
                    sleep(RETRY_INTERVAL).await;
                }
                ended => return ended,
            }
        }
    }
}
