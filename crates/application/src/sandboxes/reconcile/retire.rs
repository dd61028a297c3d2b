//! Retirement of sandboxes: idle ones are paused, expired ones deleted.
//!
//! The store decides in one transaction with the change, so a run that begins at the same moment is never cut off.
//! Direct use of the sandbox (files, editor, shell) is not in the store, so the agent server is asked for it.

use std::time::Duration;

use domain::clock::Timestamp;
use domain::error::chain;
use domain::sandbox::{RetirementReason, Sandbox, SandboxSpec, SandboxStatus};
use futures::stream::{self, StreamExt};

use super::{SandboxReconciler, endpoint};
use crate::AppError;

/// Sandboxes of one pass, and those that are checked at the same time.
const MAX_RETIRED_SANDBOXES: usize = 5_000;
const MAX_PARALLEL_RETIREMENTS: usize = 8;
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A rule of a spec: the limit, and why a sandbox beyond it is retired.
type RetirementRule = (
    fn(&SandboxSpec) -> Option<Duration>,
    fn(Timestamp) -> RetirementReason,
);
const RULES: [RetirementRule; 2] = [
    (|spec| spec.idle_stop, RetirementReason::IdleSince),
    (|spec| spec.lifetime, RetirementReason::OlderThan),
];

impl SandboxReconciler {
    /// Runs one pass. The actions run as tasks, so a slow sandbox delays no other.
    pub(super) async fn retire(&self) -> Result<(), AppError> {
        let specs = self.0.specs.list().await?;
        for (limit, reason) in RULES {
            let Some(shortest) = specs.iter().filter_map(limit).min() else {
                continue;
            };
            let due = self.list_due(reason, shortest).await?;
            // A sandbox whose spec is gone (after an upgrade) has the limits of the default spec.
            let spec = |row: &Sandbox| specs.iter().find(|it| it.id == row.spec_id);
            let limit_of = |row: &Sandbox| spec(row).or(specs.first()).and_then(limit);
            let due = due
                .into_iter()
                .filter_map(|row| Some((limit_of(&row)?, row)));
            stream::iter(due)
                .for_each_concurrent(MAX_PARALLEL_RETIREMENTS, |(age, row)| async move {
                    let why = reason(self.time_before(age));
                    let is_idle_rule = matches!(why, RetirementReason::IdleSince(_));
                    if !is_idle_rule || !self.is_in_use(&row, age).await {
                        self.retire_sandbox(&row, reason(self.time_before(age)))
                            .await;
                    }
                })
                .await;
        }
        Ok(())
    }

    pub(super) fn time_before(&self, age: Duration) -> Timestamp {
        self.0.clock.now().minus(age)
    }

    async fn list_due(
        &self,
        why: fn(Timestamp) -> RetirementReason,
        age: Duration,
    ) -> Result<Vec<Sandbox>, AppError> {
        let (sandboxes, host) = (&self.0.host_sandboxes, &self.0.policy.host);
        let why = why(self.time_before(age));
        let due = sandboxes.list_retirable(host, why, MAX_RETIRED_SANDBOXES);
        Ok(due.await?)
    }

    /// Whether the agent server is used directly. One that is too busy to answer is in use; a dead one is not.
    async fn is_in_use(&self, row: &Sandbox, limit: Duration) -> bool {
        let Some(url) = &row.agent_url else {
            return false;
        };
        let Ok(at) = endpoint(&*self.0.cipher, row, url) else {
            return false;
        };
        let agents = &self.0.agent_lifecycle;
        match tokio::time::timeout(INSPECT_TIMEOUT, agents.idle_time(&at)).await {
            Ok(Ok(idle)) => idle.is_some_and(|idle| idle < limit),
            Ok(Err(_)) | Err(_) => agents.is_alive(&row.id, url).await,
        }
    }

    pub(super) async fn retire_sandbox(&self, row: &Sandbox, why: RetirementReason) {
        // The store may not know of a run yet: reports may get lost, and clients may use the agent server directly.
        if row.status == SandboxStatus::Running {
            let synced = self.0.syncer.sync_sandbox(&row.id);
            if let Ok(Err(error)) = tokio::time::timeout(INSPECT_TIMEOUT, synced).await {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot sync a sandbox before its retirement");
            }
        }
        let (sandboxes, now) = (&self.0.host_sandboxes, self.0.clock.now());
        let retired = sandboxes.retire(&row.id, why, now).await;
        self.0.reporters.clear();
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
        self.converge_soon(&row.id);
    }
}
