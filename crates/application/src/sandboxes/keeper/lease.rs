//! The right of this process to act on a sandbox of a host that others serve, too.

use std::time::Duration;

use domain::id::SandboxId;
use tokio_util::sync::CancellationToken;

use super::Keeper;

/// First pause between two tries to take a lease that somebody has; doubles up to [`SLOWEST_TRY`].
const FASTEST_TRY: Duration = Duration::from_millis(20);
const SLOWEST_TRY: Duration = Duration::from_millis(500);

/// Held until dropped. Whoever crashes with it frees it by its end.
pub(super) struct Lease {
    keeper: Keeper,
    name: String,
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
        let name = format!("sandbox/{id}");
        let mut pause = FASTEST_TRY;
        while !self.take(&name).await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_TRY);
        }
        let lease = Lease {
            keeper: self.clone(),
            name,
            over: CancellationToken::new(),
            lost: CancellationToken::new(),
        };
        let (keeper, name) = (self.clone(), lease.name.clone());
        let (over, lost) = (lease.over.clone(), lease.lost.clone());
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = keeper.prolong(&name) => lost.cancel(),
            }
        });
        Some(lease)
    }

    /// Returns when the lease is not ours any more.
    async fn prolong(&self, name: &str) {
        loop {
            tokio::time::sleep(self.0.policy.lease / 3).await;
            if !self.take(name).await {
                return;
            }
        }
    }

    async fn take(&self, name: &str) -> bool {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        let taken = ports
            .leases
            .take(name, &self.0.holder, now, now.plus(policy.lease))
            .await;
        taken.unwrap_or_else(|error| {
            tracing::debug!(lease = name, %error, "lease neither taken nor prolonged");
            false
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.over.cancel();
        let (keeper, name) = (self.keeper.clone(), std::mem::take(&mut self.name));
        // When the service is stopping this is not done any more, and the lease runs out by itself.
        self.keeper.0.tasks.spawn(async move {
            let given_back = keeper
                .0
                .ports
                .leases
                .give_back(&name, &keeper.0.holder)
                .await;
            if let Err(error) = given_back {
                tracing::debug!(lease = name, %error, "lease not given back; it runs out");
            }
        });
    }
}
