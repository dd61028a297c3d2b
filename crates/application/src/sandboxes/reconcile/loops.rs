//! The loops of the reconciler: facts and reachability of the backend, the relist, and retirement.

use domain::error::chain;
use domain::sandbox::{BackendReachability, PrepareProgress};
use futures::StreamExt;
use tokio::time::Instant;

use super::SandboxReconciler;
use crate::runtime::ticker;

/// Facts that are handled at the same time; one at a time per sandbox.
const MAX_PARALLEL_FACTS: usize = 32;

impl SandboxReconciler {
    /// Starts the loops. Call once.
    pub(crate) fn spawn_loops(&self) {
        let tasks = &self.0.tasks;
        tasks.spawn(self.clone().watch_facts());
        tasks.spawn(self.clone().follow_contact());
        tasks.spawn(self.clone().relist_periodically());
        tasks.spawn(self.clone().retire_periodically());
    }

    /// Requests a relist soon. Never waits.
    pub(crate) fn request_relist(&self) {
        self.0.relist_requested.notify_one();
    }

    /// Prepares the backend in the background for starts of the default spec. A failure is not fatal: the start that
    /// needs the backend reports it.
    pub(crate) fn prepare_default_spec(&self) {
        let this = self.clone();
        self.0.tasks.spawn(async move {
            let spec = match this.0.specs.list().await {
                Ok(specs) => specs.first().cloned(),
                Err(error) => return tracing::warn!(error = %chain(&error), "cannot list sandbox specs; the backend is not prepared"),
            };
            if let Some(spec) = spec
                && let Err(error) = this.0.backend.prepare(&spec.id, &PrepareProgress::silent()).await
            {
                tracing::warn!(error = %chain(&error), "the sandbox backend is not ready; starts will fail until it is");
            }
        });
    }

    async fn watch_facts(self) {
        let facts = self.0.lifecycle.watch();
        facts
            .for_each_concurrent(MAX_PARALLEL_FACTS, |fact| {
                let reconciler = self.clone();
                async move {
                    if let Err(error) = reconciler.note_fact(&fact).await {
                        tracing::warn!(sandbox.id = %fact.id, error = %chain(&error), "cannot record a state that the backend reported; the next periodic list repeats it");
                    }
                }
            })
            .await;
    }

    /// Follows whether the backend is reachable. After a reconnect everything is compared at once.
    async fn follow_contact(self) {
        let mut contact = self.0.backend.watch_reachability();
        while let Some(now) = contact.next().await {
            match &now {
                BackendReachability::Reachable => {
                    tracing::info!("the sandbox backend is reachable");
                }
                BackendReachability::Unreachable { detail } => {
                    tracing::warn!(detail, "the sandbox backend is unreachable");
                }
            }
            if let Err(error) = self.note_contact(&now).await {
                tracing::warn!(error = %chain(&error), "cannot store the reachability of the backend in the rows of sandboxes; trying again");
            }
            if now == BackendReachability::Reachable {
                self.request_relist();
            }
        }
    }

    async fn retire_periodically(self) {
        let mut tick = ticker(self.0.policy.retire_interval);
        // Not at once: first the relist records what happened while the service was down.
        tick.tick().await;
        loop {
            tick.tick().await;
            if let Err(error) = self.retire().await {
                tracing::warn!(error = %chain(&error), "cannot list idle and expired sandboxes; trying again");
            }
        }
    }

    /// Whether this process is the one that acts on the sandboxes of its host without a request. Of several one does at a time,
    /// because a list of a backend is long.
    async fn leads_host(&self, holder: &str) -> bool {
        let policy = &self.0.policy;
        if !policy.is_host_shared {
            return true;
        }
        let now = self.0.clock.now();
        let (name, until) = (
            format!("relist/{}", policy.host),
            now.plus(policy.settle_interval * 2),
        );
        let taken = self.0.leases.acquire(&name, holder, now, until).await;
        taken.unwrap_or_else(|error| {
            tracing::debug!(lease = name, error = %chain(&error), "cannot take a lease yet; trying again");
            false
        })
    }

    fn is_comparison_due(&self, last: Option<Instant>) -> bool {
        let policy = &self.0.policy;
        // Where no other process may have left work, each tick compares.
        !policy.is_host_shared || last.is_none_or(|at| at.elapsed() >= policy.relist_interval)
    }

    async fn relist_periodically(self) {
        let policy = &self.0.policy;
        let mut tick = ticker(if policy.is_host_shared {
            policy.settle_interval
        } else {
            policy.relist_interval
        });
        let holder = self.0.ids.uuid().simple().to_string();
        // A restart of this process is a gap: sync every running sandbox.
        self.0.syncer.request_all().await;
        // `None`: now. The first comparison finds what happened while this process did not run.
        let mut compared_at = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.0.relist_requested.notified() => compared_at = None,
            }
            if let Err(error) = self.annotate_rows().await {
                tracing::debug!(error = %chain(&error), "cannot store the reachability of the backend in the rows of sandboxes; trying again");
            }
            if self.is_out_of_contact() {
                continue;
            }
            let leads = self.leads_host(&holder).await;
            if self.is_comparison_due(compared_at) {
                let work = async {
                    if leads || compared_at.is_none() {
                        self.relist().await
                    } else {
                        self.count_sandboxes().await
                    }
                };
                match work.await {
                    Ok(()) => compared_at = Some(Instant::now()),
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "cannot compare sandboxes with their rows; trying again");
                    }
                }
            } else if let Err(error) = self.settle(leads).await {
                tracing::warn!(error = %chain(&error), "cannot list sandboxes that are not as they are wanted; trying again");
            }
        }
    }
}
