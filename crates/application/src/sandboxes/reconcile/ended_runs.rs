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

impl SandboxService {
    /// Sandboxes of this host that runs of automations have made and may have left: those of `ended` runs, those whose run
    /// must have ended, and those from before `process_start`, which this process of the automations service does not prepare.
    pub async fn of_ended_runs(
        &self,
        ended: &HashSet<ApiKeyId>,
        process_start: Option<Timestamp>,
    ) -> Result<Vec<Sandbox>, AppError> {
        self.reconciler.of_ended_runs(ended, process_start).await
    }

    /// Deletes the sandbox of an ended run, unless a conversation in it runs.
    pub async fn delete_after_run(&self, sandbox: &Sandbox) {
        let why = RetirementReason::OlderThan(self.clock.now());
        self.reconciler.retire_sandbox(sandbox, why).await;
    }
}

impl SandboxReconciler {
    async fn of_ended_runs(
        &self,
        ended: &HashSet<ApiKeyId>,
        process_start: Option<Timestamp>,
    ) -> Result<Vec<Sandbox>, AppError> {
        let expired = self.time_before(MAX_RUN_DURATION);
        let before = process_start.map_or(expired, |start| start.max(expired));
        let mut found = Vec::new();
        for_each_on_host(&*self.0.host_sandboxes, &self.0.policy.host, |row| {
            let has_ended = |run| ended.contains(&run) || row.created_at < before;
            if row.desired != DesiredState::Deleted && row.automation_key.is_some_and(has_ended) {
                found.push(row);
            }
        })
        .await?;
        Ok(found)
    }
}
