//! The right of this process to act on a sandbox of a host that others serve, too.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::id::SandboxId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SandboxReconciler;

/// First pause between two tries to take a lease that somebody has; doubles up to [`MAX_TAKE_BACKOFF`].
const MIN_TAKE_BACKOFF: Duration = Duration::from_millis(20);
const MAX_TAKE_BACKOFF: Duration = Duration::from_millis(500);
/// Between two tries to prolong one while the store is busy.
const RENEW_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Held until dropped. Whoever crashes with it frees it by its end.
pub(super) struct SandboxLease {
    keeper: SandboxReconciler,
    name: String,
    /// One of its own for each turn: giving back late must not end the lease of this process' next turn.
    holder: String,
    /// Ends the renewal.
    over: CancellationToken,
    /// Cancelled when the renewal has ended, once there is one.
    renewed: Option<CancellationToken>,
    lost: CancellationToken,
}

impl SandboxLease {
    /// Completes when somebody else may act on the sandbox.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl SandboxReconciler {
    /// Waits for the right to act on a sandbox. Where nobody else serves the host there is nothing to wait for.
    pub(super) async fn lease(&self, id: &SandboxId) -> Option<SandboxLease> {
        if !self.0.policy.is_host_shared {
            return None;
        }
        let mut lease = SandboxLease {
            keeper: self.clone(),
            name: format!("sandbox/{id}"),
            holder: self.0.ports.ids.uuid().simple().to_string(),
            over: self.0.tasks.stopping().child_token(),
            renewed: None,
            lost: CancellationToken::new(),
        };
        let until = lease.acquire().await;
        let (keeper, name) = (self.clone(), lease.name.clone());
        let (holder, over, lost) = (lease.holder.clone(), lease.over.clone(), lease.lost.clone());
        let renewed = CancellationToken::new();
        lease.renewed = Some(renewed.clone());
        // To its end: a renewal that was cut off might still come to the store, after the lease was given back.
        self.0.tasks.spawn_uncancelled(async move {
            let _renewed = renewed.drop_guard();
            if keeper.renew_until_done(&name, &holder, until, &over).await.is_none() {
                lost.cancel();
            }
        });
        Some(lease)
    }

    /// `Some` when it is over, `None` when the lease is not ours any more, or could not be prolonged in time. `until` is
    /// when it ends, counted from before it was asked for, so that nobody can have it while we think that we do.
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
                // A busy store is no lost lease, until the lease has run out.
                Ok(Err(error)) => {
                    tracing::debug!(lease = name, error = %chain(&error), "lease not prolonged yet");
                    pause = RENEW_RETRY_INTERVAL;
                }
            }
        }
    }

    async fn take(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        ports
            .leases.acquire(name, holder, now, now.plus(policy.lease))
            .await
    }
}

impl SandboxLease {
    /// Waits until it is ours; until when.
    async fn acquire(&mut self) -> Instant {
        let mut pause = MIN_TAKE_BACKOFF;
        loop {
            let asked = Instant::now();
            match self.keeper.take(&self.name, &self.holder).await {
                Ok(true) => return asked + self.keeper.0.policy.lease,
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
        let (keeper, name) = (self.keeper.clone(), std::mem::take(&mut self.name));
        let (holder, renewed) = (std::mem::take(&mut self.holder), self.renewed.take());
        // Also when the service stops: whoever goes on need not wait until it runs out.
        self.keeper.0.tasks.spawn_uncancelled(async move {
            if let Some(renewed) = renewed {
                renewed.cancelled().await;
            }
            let given_back = keeper.0.ports.leases.release(&name, &holder).await;
            if let Err(error) = given_back {
                tracing::debug!(lease = name, error = %chain(&error), "lease not given back; it runs out");
            }
        });
    }
}
