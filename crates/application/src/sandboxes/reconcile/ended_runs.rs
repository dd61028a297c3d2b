//! Sandboxes that runs of automations leave behind.
//!
//! The automations service deletes the sandbox of a run itself, but only once, and not at all if it ends before it has stored
//! the sandbox's id.

use domain::sandbox::{DesiredState, RetirementReason, Sandbox};

use super::SandboxReconciler;
use crate::AppError;
use crate::automation_keys::KEY_TTL;
use crate::sandboxes::{SandboxService, for_each_on_host};

impl SandboxService {
    /// Sandboxes of this host whose runs have ended: the keys with which they were made have expired.
    pub async fn of_ended_runs(&self) -> Result<Vec<Sandbox>, AppError> {
        self.reconciler.of_ended_runs().await
    }

    /// Deletes the sandbox of an ended run, unless a conversation in it runs.
    pub async fn delete_after_run(&self, sandbox: &Sandbox) {
        self.reconciler.delete_after_run(sandbox).await;
    }
}

impl SandboxReconciler {
    async fn of_ended_runs(&self) -> Result<Vec<Sandbox>, AppError> {
        let expired = self.time_before(KEY_TTL);
        let mut found = Vec::new();
        for_each_on_host(&*self.0.host_sandboxes, &self.0.policy.host, |row| {
            let is_left = row.automation_key.is_some() && row.desired != DesiredState::Deleted;
            if is_left && row.created_at <= expired {
                found.push(row);
            }
        })
        .await?;
        Ok(found)
    }

    async fn delete_after_run(&self, row: &Sandbox) {
        let why = RetirementReason::OlderThan(self.time_before(KEY_TTL));
        self.retire_sandbox(row, why).await;
    }
}
