//! Leases on sandboxes of a host that several processes serve.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::id::SandboxId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SandboxReconciler;
use crate::runtime::lease::renew_until_over;

/// First pause between two attempts to take a held lease; doubles up to [`MAX_TAKE_BACKOFF`].
const MIN_TAKE_BACKOFF: Duration = Duration::from_millis(20);
const MAX_TAKE_BACKOFF: Duration = Duration::from_millis(500);

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

/// Completes when another process may act on the sandbox; never without a lease.
pub(super) async fn wait_until_lost(lease: Option<&SandboxLease>) {
    match lease {
        Some(lease) => lease.lost.cancelled().await,
        None => std::future::pending().await,
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
            holder: self.0.ids.uuid().simple().to_string(),
            over: self.0.tasks.stopping().child_token(),
            renewed: None,
            lost: CancellationToken::new(),
        };
        let until = lease.acquire().await;
        let (reconciler, name, holder) = (self.clone(), lease.name.clone(), lease.holder.clone());
        let (over, lost) = (lease.over.clone(), lease.lost.clone());
        let renewed = CancellationToken::new();
        lease.renewed = Some(renewed.clone());
        // Uncancelled: a renewal that was cut off might reach the store after the release.
        self.0.tasks.spawn_uncancelled(async move {
            let _renewed = renewed.drop_guard();
            let renew = || reconciler.take(&name, &holder);
            let length = reconciler.0.policy.lease_ttl;
            if !renew_until_over(&name, length, until, &over, renew).await {
                lost.cancel();
            }
        });
        Some(lease)
    }

    async fn take(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let (leases, now) = (&self.0.leases, self.0.clock.now());
        let until = now.plus(self.0.policy.lease_ttl);
        leases.acquire(name, holder, now, until).await
    }
}

impl SandboxLease {
    /// Waits until the lease is taken; returns its end.
    async fn acquire(&mut self) -> Instant {
        let mut pause = MIN_TAKE_BACKOFF;
        loop {
            let asked = Instant::now();
            match self.reconciler.take(&self.name, &self.holder).await {
                Ok(true) => return asked + self.reconciler.0.policy.lease_ttl,
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
            let given_back = reconciler.0.leases.release(&name, &holder).await;
            if let Err(error) = given_back {
                tracing::debug!(lease = name, error = %chain(&error), "cannot release a lease; it expires");
            }
        });
    }
}
