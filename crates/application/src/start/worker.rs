//! The start worker: claims tasks by lease and runs them.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::error::{StoreError, chain};
use domain::id::StartTaskId;
use domain::start_task::{ClaimLimit, LeasedStartTask};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::StartService;
use super::start_run::{StartRun, StartRunner};
use crate::runtime::lease::renew_until_over;
use crate::runtime::metrics::StartOutcome;
use crate::runtime::ticker;
use crate::{AuthMode, BackgroundTasks, Policy, trace};

const QUEUE_COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Parallel starts of one user. A start may take minutes, so some slots stay free for others; in open mode there is
/// only one user.
fn max_starts_per_user(policy: &Policy) -> usize {
    let slots = policy.max_parallel_starts;
    match policy.auth {
        AuthMode::Open(_) => slots,
        AuthMode::ApiKey | AuthMode::Accounts => slots.saturating_sub((slots / 4).max(1)).max(1),
    }
}

/// Claims and runs the start tasks of this host.
#[derive(Clone)]
pub(crate) struct StartWorker {
    clock: Arc<dyn Clock>,
    policy: Policy,
    runner: Arc<StartRunner>,
    wake: Arc<Notify>,
    tasks: BackgroundTasks,
    /// Cancelled when this process hands its starts over to the other replicas of the host.
    leaving: CancellationToken,
    starting: TaskTracker,
}

impl StartWorker {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        policy: Policy,
        starts: &StartService,
        runner: StartRunner,
        tasks: BackgroundTasks,
    ) -> Self {
        Self {
            clock,
            policy,
            runner: Arc::new(runner),
            wake: Arc::clone(&starts.wake),
            tasks,
            leaving: CancellationToken::new(),
            starting: TaskTracker::new(),
        }
    }

    /// Starts the worker. Call once.
    pub(crate) fn spawn(&self) {
        let work = self.starting.track_future(self.clone().run());
        self.tasks.spawn(work);
        self.tasks.spawn(self.clone().count_queue_periodically());
    }

    /// See [`App::hand_over`](crate::App::hand_over).
    pub(crate) async fn hand_over_all(&self, deadline: Duration) -> bool {
        if !self.policy.is_host_shared {
            return true;
        }
        self.leaving.cancel();
        self.starting.close();
        let all = self.starting.wait();
        tokio::time::timeout(deadline, all).await.is_ok()
    }

    async fn count_queue_periodically(self) {
        let mut tick = ticker(QUEUE_COUNT_INTERVAL);
        let (queue, host) = (&self.runner.queue, &self.policy.host);
        loop {
            tick.tick().await;
            match queue.count_unfinished(host, self.clock.now()).await {
                Ok(now) => self.runner.metrics.set_queue(now),
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "cannot count unfinished starts");
                }
            }
        }
    }

    /// Claims and runs tasks until the service stops: after commits in this process, and periodically for tasks whose
    /// worker died.
    async fn run(self) {
        let policy = &self.policy;
        if !policy.is_host_shared {
            self.release_leases().await;
        }
        let slots = Arc::new(Semaphore::new(policy.max_parallel_starts));
        // After `App::hand_over` this process claims no more tasks, not even the ones that it has handed over and that
        // wake this loop.
        while !self.leaving.is_cancelled() {
            let until = Instant::now() + policy.lease_ttl;
            for claim in self.claim(slots.available_permits()).await {
                // Only this loop takes permits, so the free ones are still there.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                    break;
                };
                // Before the task runs, so that a poll of other processes does not publish the claimed state.
                let here = self.runner.updates.track_local(claim.task.id);
                let worker = self.clone();
                let span = tracing::info_span!("start", task.id = %claim.task.id, sandbox.id = %claim.task.sandbox_id);
                trace::continue_trace(policy.traces, &claim.task.request.trace, &span);
                let work = async move {
                    worker.run_leased(claim, until).await;
                    drop((here, slot));
                    worker.wake.notify_one();
                };
                let work = self.starting.track_future(work);
                self.tasks.spawn(work.instrument(span));
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(policy.claim_interval) => {}
                () = self.leaving.cancelled() => {}
            }
        }
    }

    /// Releases the leases of the host. This process has locked the data directory and no other one serves the host, so
    /// their holders are dead.
    async fn release_leases(&self) {
        match self.runner.queue.release_host(&self.policy.host).await {
            Ok(0) => {}
            Ok(tasks) => tracing::info!(
                tasks,
                "continuing starts that an earlier process left unfinished"
            ),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot release the leases of an earlier process; its starts continue when these leases expire");
            }
        }
    }

    async fn claim(&self, free: usize) -> Vec<LeasedStartTask> {
        if free == 0 {
            return Vec::new();
        }
        let policy = &self.policy;
        let now = self.clock.now();
        let until = now.plus(policy.lease_ttl);
        let limit = ClaimLimit {
            tasks: free,
            per_owner: max_starts_per_user(policy),
        };
        let claimed = self.runner.queue.claim(&policy.host, now, until, limit);
        claimed.await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot claim start tasks; trying again");
            Vec::new()
        })
    }

    /// Runs a task while its lease is renewed; stops the moment the lease may be over.
    async fn run_leased(&self, claim: LeasedStartTask, until: Instant) {
        let (id, fence) = (claim.task.id, claim.fence);
        let run = StartRun::new(Arc::clone(&self.runner), claim);
        tokio::select! {
            () = run.run() => return,
            () = self.renew_lease(id, fence, until) => {
                tracing::warn!("lease lost; another worker continues the start");
                self.runner.publish_if_ended(id).await;
            }
            () = self.leaving.cancelled() => self.hand_over(id, fence).await,
        }
        self.runner.metrics.count_ended(StartOutcome::Abandoned);
    }

    /// Releases the lease of a run that was cut off. As after a crash, the next worker finds what is done.
    async fn hand_over(&self, id: StartTaskId, fence: i64) {
        match self.runner.queue.release(id, fence).await {
            Ok(()) => tracing::info!("start handed over; another worker continues it"),
            // The task has ended, or another worker has it.
            Err(StoreError::Stale { .. }) => {}
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot hand over a start; another worker continues it when its lease expires");
            }
        }
    }

    /// Renews the lease; returns when another worker has it or it cannot be renewed in time.
    async fn renew_lease(&self, id: StartTaskId, fence: i64, until: Instant) {
        let length = self.policy.lease_ttl;
        let never = CancellationToken::new();
        let renew = || async {
            let until = self.clock.now().plus(length);
            match self.runner.queue.renew(id, fence, until).await {
                Err(StoreError::Stale { .. }) => Ok(false),
                renewed => renewed.map(|()| true),
            }
        };
        renew_until_over(&format!("start/{id}"), length, until, &never, renew).await;
    }
}
