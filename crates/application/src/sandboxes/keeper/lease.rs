//! The right of this process to act on a sandbox of a host that others serve, too.

use std::time::Duration;

use domain::error::StoreError;
use domain::id::SandboxId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Keeper;

/// First pause between two tries to take a lease that somebody has; doubles up to [`SLOWEST_TRY`].
const FASTEST_TRY: Duration = Duration::from_millis(20);
const SLOWEST_TRY: Duration = Duration::from_millis(500);
/// Between two tries to prolong one while the store is busy.
const RETRY: Duration = Duration::from_millis(200);

/// Held until dropped. Whoever crashes with it frees it by its end.
pub(super) struct Lease {
    keeper: Keeper,
    name: String,
    /// One of its own for each turn: giving back late must not end the lease of this process' next turn.
    holder: String,
    /// Ends the renewal.
    over: CancellationToken,
    lost: CancellationToken,
}

impl Lease {
    /// Completes when somebody else may act on the sandbox.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Keeper {
    /// Waits for the right to act on a sandbox. Where nobody else serves the host there is nothing to wait for.
    pub(super) async fn lease(&self, id: &SandboxId) -> Option<Lease> {
        if !self.0.policy.is_host_shared {
            return None;
        }
        let mut lease = Lease {
            keeper: self.clone(),
            name: format!("sandbox/{id}"),
            holder: self.0.ports.ids.uuid().simple().to_string(),
            over: CancellationToken::new(),
            lost: CancellationToken::new(),
        };
        let until = lease.taken().await;
        let (keeper, name) = (self.clone(), lease.name.clone());
        let (holder, over, lost) = (lease.holder.clone(), lease.over.clone(), lease.lost.clone());
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = keeper.prolong(&name, &holder, until) => lost.cancel(),
            }
        });
        Some(lease)
    }

    /// Returns when the lease is not ours any more, or could not be prolonged in time. `until` is when it ends, counted
    /// from before it was asked for, so that nobody can have it while we think that we do.
    async fn prolong(&self, name: &str, holder: &str, mut until: Instant) {
        let lease = self.0.policy.lease;
        let mut pause = lease / 3;
        loop {
            tokio::time::sleep(pause).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(until, self.take(name, holder)).await {
                Ok(Ok(true)) => (until, pause) = (asked + lease, lease / 3),
                Ok(Ok(false)) | Err(_) => return,
                // A busy store is no lost lease, until the lease has run out.
                Ok(Err(error)) => {
                    tracing::debug!(lease = name, %error, "lease not prolonged yet");
                    pause = RETRY;
                }
            }
        }
    }

    async fn take(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        ports
            .leases
            .take(name, holder, now, now.plus(policy.lease))
            .await
    }
}

impl Lease {
    /// Waits until it is ours; until when.
    async fn taken(&mut self) -> Instant {
        let mut pause = FASTEST_TRY;
        loop {
            let asked = Instant::now();
            match self.keeper.take(&self.name, &self.holder).await {
                Ok(true) => return asked + self.keeper.0.policy.lease,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(lease = self.name, %error, "lease not taken yet");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_TRY);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.over.cancel();
        let (keeper, name) = (self.keeper.clone(), std::mem::take(&mut self.name));
        let holder = std::mem::take(&mut self.holder);
        // Also when the service stops: whoever goes on need not wait until it runs out.
        self.keeper.0.tasks.spawn_last(async move {
            let given_back = keeper.0.ports.leases.give_back(&name, &holder).await;
            if let Err(error) = given_back {
                tracing::debug!(lease = name, %error, "lease not given back; it runs out");
            }
        });
    }
}
