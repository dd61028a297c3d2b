//! Sandboxes that runs of automations leave behind.
//!
//! The automations service deletes the sandbox of a run itself, but only once, and not at all if the run ends before it has
//! stored the sandbox's id.

use std::collections::HashSet;

use domain::clock::Timestamp;
use domain::id::ApiKeyId;
use domain::sandbox::{DesiredState, RetirementReason, Sandbox};

use super::SandboxReconciler;
use crate::AppError;
use crate::automation_keys::MAX_RUN_DURATION;
use crate::sandboxes::{SandboxService, for_each_on_host};

/// Runs that have ended, and whose sandboxes may be left.
#[derive(Debug)]
pub enum EndedRuns {
    /// Those that have reported their end.
    Reported(HashSet<ApiKeyId>),
    /// Those that must have ended by their age, and those from before this start of the automations service's process, which
    /// does not prepare them.
    Earlier(Option<Timestamp>),
}

impl SandboxService {
    /// Sandboxes of this host that these runs have made and may have left.
    pub async fn of_ended_runs(&self, ended: &EndedRuns) -> Result<Vec<Sandbox>, AppError> {
        self.reconciler.of_ended_runs(ended).await
    }

    /// Deletes the sandbox of an ended run, unless a conversation in it runs.
    pub async fn delete_after_run(&self, sandbox: &Sandbox) {
        let why = RetirementReason::OlderThan(self.clock.now());
        self.reconciler.retire_sandbox(sandbox, why).await;
    }
}

impl SandboxReconciler {
    async fn of_ended_runs(&self, ended: &EndedRuns) -> Result<Vec<Sandbox>, AppError> {
        let expired = self.time_before(MAX_RUN_DURATION);
        let has_ended = |run: &ApiKeyId, created_at: Timestamp| match ended {
            EndedRuns::Reported(runs) => runs.contains(run),
            EndedRuns::Earlier(start) => {
                created_at < start.map_or(expired, |start| start.max(expired))
            }
        };
        let mut found = Vec::new();
        for_each_on_host(&*self.0.host_sandboxes, &self.0.policy.host, |row| {
            let run = row.automation_key.as_ref();
            let is_left = run.is_some_and(|run| has_ended(run, row.created_at));
            if is_left && row.desired != DesiredState::Deleted {
                found.push(row);
            }
        })
        .await?;
        Ok(found)
    }
}
