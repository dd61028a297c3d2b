//! Retirement of sandboxes: idle ones are paused, expired ones deleted.
//!
//! The store decides in one transaction with the change, so a run that begins at the same moment is never cut off.
//! Direct use of the sandbox (files, editor, shell) is not in the store, so the agent server is asked for it.

use std::collections::HashMap;
use std::time::Duration;

use domain::clock::Timestamp;
use domain::error::chain;
use domain::id::SpecId;
use domain::sandbox::{RetirementReason, Sandbox, SandboxSpec, SandboxStatus};
use futures::stream::{self, StreamExt};

use super::SandboxReconciler;
use crate::{AppError, BackgroundTasks};

/// Sandboxes of one pass, and those that are checked at the same time.
const MAX_RETIRED_SANDBOXES: usize = 5_000;
const MAX_PARALLEL_RETIREMENTS: usize = 8;
/// Longest check of one sandbox.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct SpecLimits {
    idle: Option<Duration>,
    lifetime: Option<Duration>,
}

impl SandboxReconciler {
    /// Runs one pass. The actions run as tasks, so a slow sandbox delays no other.
    pub(crate) async fn retire(&self, tasks: &BackgroundTasks) -> Result<(), AppError> {
        let specs = self.0.ports.specs.list().await?;
        let known: HashMap<&SpecId, SpecLimits> =
            specs.iter().map(|s| (&s.id, limits(s))).collect();
        // A sandbox whose spec is gone (after an upgrade) has the limits of the default spec.
        let Some(default) = specs.first().map(limits) else {
            return Ok(());
        };
        let of = |row: &Sandbox| known.get(&row.spec_id).copied().unwrap_or(default);
        let all = || known.values().copied();
        if let Some(idle) = all().filter_map(|l| l.idle).min() {
            let due = self.list_due(RetirementReason::IdleSince, idle).await?;
            let due = due
                .into_iter()
                .filter_map(|row| Some((of(&row).idle?, row)));
            stream::iter(due)
                .for_each_concurrent(MAX_PARALLEL_RETIREMENTS, |(idle, row)| async move {
                    if !self.is_in_use(&row, idle).await {
                        let why = RetirementReason::IdleSince(self.time_before(idle));
                        self.retire_sandbox(&row, why, tasks).await;
                    }
                })
                .await;
        }
        if let Some(lifetime) = all().filter_map(|l| l.lifetime).min() {
            let due = self.list_due(RetirementReason::OlderThan, lifetime).await?;
            let due = due
                .into_iter()
                .filter_map(|row| Some((of(&row).lifetime?, row)));
            stream::iter(due)
                .for_each_concurrent(MAX_PARALLEL_RETIREMENTS, |(lifetime, row)| async move {
                    let why = RetirementReason::OlderThan(self.time_before(lifetime));
                    self.retire_sandbox(&row, why, tasks).await;
                })
                .await;
        }
        Ok(())
    }

    fn time_before(&self, age: Duration) -> Timestamp {
        self.0.ports.clock.now().minus(age)
    }

    async fn list_due(
        &self,
        why: fn(Timestamp) -> RetirementReason,
        age: Duration,
    ) -> Result<Vec<Sandbox>, AppError> {
        let (ports, host) = (&self.0.ports, &self.0.policy.host);
        let why = why(self.time_before(age));
        Ok(ports
            .sandboxes
            .list_retirable(host, why, MAX_RETIRED_SANDBOXES)
            .await?)
    }

    /// Whether the agent server is used directly. One that is too busy to answer is in use; a dead one is not.
    async fn is_in_use(&self, row: &Sandbox, limit: Duration) -> bool {
        let Some(url) = &row.agent_url else {
            return false;
        };
        let Ok(at) = self.endpoint(row, url) else {
            return false;
        };
        let agents = &self.0.ports.agents;
        match tokio::time::timeout(INSPECT_TIMEOUT, agents.idle_time(&at)).await {
            Ok(Ok(idle)) => idle.is_some_and(|idle| idle < limit),
            Ok(Err(_)) | Err(_) => agents.is_alive(&row.id, url).await,
        }
    }

    async fn retire_sandbox(&self, row: &Sandbox, why: RetirementReason, tasks: &BackgroundTasks) {
        // The store may not know of a run yet: reports may get lost, and clients may use the agent server directly.
        if row.status == SandboxStatus::Running {
            let synced =
                tokio::time::timeout(INSPECT_TIMEOUT, self.0.syncer.sync_sandbox(&row.id)).await;
            if let Ok(Err(error)) = synced {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot sync a sandbox before its retirement");
            }
        }
        let ports = &self.0.ports;
        let retired = ports
            .sandboxes
            .retire(&row.id, why, ports.clock.now())
            .await;
        self.reporters().clear();
        match retired {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "cannot retire a sandbox; trying again");
                return;
            }
        }
        tracing::info!(sandbox.id = %row.id, ?why, "retiring sandbox {}", row.id);
        self.cancel_start(&row.id);
        let (reconciler, id) = (self.clone(), row.id.clone());
        tasks.spawn(async move {
            if let Err(error) = reconciler.converge(&id).await {
                tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot stop a retired sandbox yet; the next relist tries again");
            }
        });
    }
}

fn limits(spec: &SandboxSpec) -> SpecLimits {
    SpecLimits {
        idle: spec.idle_stop,
        lifetime: spec.lifetime,
    }
}
