//! Leases on sandboxes of a host that several processes serve.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::id::SandboxId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SandboxReconciler;

/// First pause between two attempts to take a held lease; doubles up to [`MAX_TAKE_BACKOFF`].
const MIN_TAKE_BACKOFF: Duration = Duration::from_millis(20);
const MAX_TAKE_BACKOFF: Duration = Duration::from_millis(500);
/// Pause between two renewals while the store is busy.
const RENEW_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A lease, held until dropped. After a crash it expires.
pub(super) struct SandboxLease {
    reconciler: SandboxReconciler,
    name: String,
    /// Unique for each action: a late release must not end the lease of this process' next action.
    holder: String,
    /// Ends the renewal.
    over: CancellationToken,
    /// Cancelled when the renewal has ended, once there is one.
    renewed: Option<CancellationToken>,
    lost: CancellationToken,
}

impl SandboxLease {
    /// Completes when another process may act on the sandbox.
    pub(super) async fn wait_until_lost(&self) {
        self.lost.cancelled().await;
    }
}

impl SandboxReconciler {
    /// Waits for the lease on a sandbox; `None` if no other process serves the host.
    pub(super) async fn acquire_lease(&self, id: &SandboxId) -> Option<SandboxLease> {
        if !self.0.policy.is_host_shared {
            return None;
        }
        let mut lease = SandboxLease {
            reconciler: self.clone(),
            name: format!("sandbox/{id}"),
            holder: self.0.ports.ids.uuid().simple().to_string(),
            over: self.0.tasks.stopping().child_token(),
            renewed: None,
            lost: CancellationToken::new(),
        };
        let until = lease.acquire().await;
        let (reconciler, name) = (self.clone(), lease.name.clone());
        let (holder, over, lost) = (lease.holder.clone(), lease.over.clone(), lease.lost.clone());
        let renewed = CancellationToken::new();
        lease.renewed = Some(renewed.clone());
        // Uncancelled: a renewal that was cut off might reach the store after the release.
        self.0.tasks.spawn_uncancelled(async move {
            let _renewed = renewed.drop_guard();
            if reconciler
                .renew_until_done(&name, &holder, until, &over)
                .await
                .is_none()
            {
                lost.cancel();
            }
        });
        Some(lease)
    }

    /// Renews the lease until the action ends (`Some`), or until the lease is lost or cannot be renewed in time
    /// (`None`). `until` is its end, counted from before the request, so that no other process can have it while this
    /// one acts.
    async fn renew_until_done(
        &self,
        name: &str,
        holder: &str,
        mut until: Instant,
        over: &CancellationToken,
    ) -> Option<()> {
        let lease = self.0.policy.lease;
        let mut pause = lease / 3;
        loop {
            let pausing = over.run_until_cancelled(tokio::time::sleep(pause));
            if pausing.await.is_none() {
                return Some(());
            }
            let asked = Instant::now();
            match tokio::time::timeout_at(until, self.take(name, holder)).await {
                Ok(Ok(true)) => (until, pause) = (asked + lease, lease / 3),
                Ok(Ok(false)) | Err(_) => return None,
                // A busy store does not lose the lease before it expires.
                Ok(Err(error)) => {
                    tracing::debug!(lease = name, error = %chain(&error), "cannot renew a lease yet; trying again");
                    pause = RENEW_RETRY_INTERVAL;
                }
            }
        }
    }

    async fn take(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        ports
            .leases
            .acquire(name, holder, now, now.plus(policy.lease))
            .await
    }
}

impl SandboxLease {
    /// Waits until the lease is taken; returns its end.
    async fn acquire(&mut self) -> Instant {
        let mut pause = MIN_TAKE_BACKOFF;
        loop {
            let asked = Instant::now();
            match self.reconciler.take(&self.name, &self.holder).await {
                Ok(true) => return asked + self.reconciler.0.policy.lease,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(lease = self.name, error = %chain(&error), "cannot take the lease yet; trying again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_TAKE_BACKOFF);
        }
    }
}

impl Drop for SandboxLease {
    fn drop(&mut self) {
        self.over.cancel();
        let (reconciler, name) = (self.reconciler.clone(), std::mem::take(&mut self.name));
        let (holder, renewed) = (std::mem::take(&mut self.holder), self.renewed.take());
        // Also when the service stops, so that the next process need not wait for the expiry.
        self.reconciler.0.tasks.spawn_uncancelled(async move {
            if let Some(renewed) = renewed {
                renewed.cancelled().await;
            }
            let given_back = reconciler.0.ports.leases.release(&name, &holder).await;
            if let Err(error) = given_back {
                tracing::debug!(lease = name, error = %chain(&error), "cannot release a lease; it expires");
            }
        });
    }
}
