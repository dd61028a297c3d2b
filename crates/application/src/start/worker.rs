//! The start worker: claims tasks by lease and runs them.

use std::sync::Arc;

use domain::error::{StoreError, chain};
use domain::id::StartTaskId;
use domain::start_task::{ClaimLimit, LeasedStartTask};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::StartService;
use super::start_run::StartRun;
use super::updates::publish_if_ended;
use crate::runtime::lease::renew_until_over;
use crate::runtime::metrics::StartOutcome;
use crate::{AuthMode, Policy, trace};

/// Parallel starts of one user. A start may take minutes, so some slots stay free for others; in open mode there is
/// only one user.
fn max_starts_per_user(policy: &Policy) -> usize {
    let slots = policy.max_parallel_starts;
    match policy.auth {
        AuthMode::Open(_) => slots,
        AuthMode::ApiKey => slots.saturating_sub((slots / 4).max(1)).max(1),
    }
}

impl StartService {
    /// Claims and runs tasks until the service stops: after commits in this process, and periodically for tasks whose
    /// worker died. Call once.
    pub(crate) async fn run_worker(self) {
        let policy = self.inner.policy.clone();
        if !policy.is_host_shared {
            self.release_leases().await;
        }
        let slots = Arc::new(Semaphore::new(policy.max_parallel_starts));
        // After `App::hand_over` this process claims no more tasks, not even the ones that it has handed over and that
        // wake this loop.
        while !self.inner.leaving.is_cancelled() {
            let until = Instant::now() + policy.lease;
            for claim in self.claim(slots.available_permits()).await {
                // Only this loop takes permits, so the free ones are still there.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                    break;
                };
                let worker = self.clone();
                let span = tracing::info_span!("start", task.id = %claim.task.id, sandbox.id = %claim.task.sandbox_id);
                trace::continue_trace(policy.traces, &claim.task.request.trace, &span);
                let work = async move {
                    worker.run_leased(claim, until).await;
                    drop(slot);
                    worker.wake.notify_one();
                };
                let work = self.inner.starting.track_future(work);
                self.inner.tasks.spawn(work.instrument(span));
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(policy.claim_interval) => {}
                () = self.inner.leaving.cancelled() => {}
            }
        }
    }

    /// Releases the leases of the host. This process has locked the data directory and no other one serves the host, so
    /// their holders are dead.
    async fn release_leases(&self) {
        let (tasks, host) = (&self.inner.ports.start_tasks, &self.inner.policy.host);
        match tasks.release_host(host).await {
            Ok(0) => {}
            Ok(tasks) => tracing::info!(
                tasks,
                "continuing starts that an earlier process left unfinished"
            ),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot release the leases of an earlier process; its starts continue when they expire");
            }
        }
    }

    async fn claim(&self, free: usize) -> Vec<LeasedStartTask> {
        if free == 0 {
            return Vec::new();
        }
        let (ports, policy) = (&self.inner.ports, &self.inner.policy);
        let now = ports.clock.now();
        let until = now.plus(policy.lease);
        let limit = ClaimLimit {
            tasks: free,
            per_owner: max_starts_per_user(policy),
        };
        let claimed = ports.start_tasks.claim(&policy.host, now, until, limit);
        claimed.await.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot claim start tasks; trying again");
            Vec::new()
        })
    }

    /// Runs a task while its lease is renewed; stops the moment the lease may be over.
    async fn run_leased(&self, claim: LeasedStartTask, until: Instant) {
        let (id, fence) = (claim.task.id, claim.fence);
        let _here = self.inner.updates.track_local(id);
        let run = StartRun::new(
            self.inner.clone(),
            self.settings.clone(),
            self.secrets.clone(),
            claim,
        );
        tokio::select! {
            () = run.run() => return,
            () = self.renew_lease(id, fence, until) => {
                tracing::warn!("lease lost; another worker continues the start");
                publish_if_ended(&self.inner, id).await;
            }
            () = self.inner.leaving.cancelled() => self.hand_over(id, fence).await,
        }
        self.inner.metrics.count_ended(StartOutcome::Abandoned);
    }

    /// Releases the lease of a run that was cut off. As after a crash, the next worker finds what is done.
    async fn hand_over(&self, id: StartTaskId, fence: i64) {
        match self.inner.ports.start_tasks.release(id, fence).await {
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
        let (ports, length) = (&self.inner.ports, self.inner.policy.lease);
        let never = CancellationToken::new();
        let renew = || async {
            let until = ports.clock.now().plus(length);
            match ports.start_tasks.renew(id, fence, until).await {
                Err(StoreError::Stale { .. }) => Ok(false),
                renewed => renewed.map(|()| true),
            }
        };
        renew_until_over(&format!("start/{id}"), length, until, &never, renew).await;
    }
}
