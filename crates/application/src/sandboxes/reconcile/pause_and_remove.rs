//! Pausing and removing sandboxes.

use std::time::Duration;

use domain::conversation::ExecutionStatus;
use domain::error::chain;
use domain::sandbox::{BackendState, DesiredState, Sandbox, SandboxError, SandboxFacts};
use url::Url;

use super::{SandboxReconciler, endpoint};
use crate::AppError;

/// Longest interruption of runs before a pause.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of conversations that are checked for runs before a pause.
const MAX_INTERRUPTED_CONVERSATIONS: usize = 100;

impl SandboxReconciler {
    /// Pauses a sandbox: interrupts runs (so that the agent server records it), stops the sandbox, settles the rows.
    pub(super) async fn pause_sandbox(&self, row: &Sandbox) -> Result<(), AppError> {
        let now = self.0.clock.now();
        if let Some(BackendState::Running(endpoints)) = self.0.lifecycle.inspect(&row.id).await? {
            let interrupt = self.interrupt_runs(row, &endpoints.agent_url);
            if tokio::time::timeout(INTERRUPT_TIMEOUT, interrupt)
                .await
                .is_err()
            {
                tracing::info!(sandbox.id = %row.id, "cannot interrupt runs in time before the pause; stopping the sandbox anyway");
            }
        }
        let facts = match self.0.lifecycle.stop(&row.id).await {
            Ok(()) => SandboxFacts::Paused,
            // It was never created, so nothing is missing: a resume creates it.
            Err(SandboxError::NotFound) if row.workspace.is_none() => SandboxFacts::Paused,
            Err(SandboxError::NotFound) => SandboxFacts::Missing {
                detail: "the sandbox was removed outside of the service before it could be paused"
                    .to_owned(),
            },
            Err(error) => return Err(error.into()),
        };
        self.record(row, DesiredState::Paused, &facts).await?;
        let (conversations, settled) = (&self.0.conversations, ExecutionStatus::Paused);
        conversations.settle_running(&row.id, settled, now).await?;
        Ok(())
    }

    async fn interrupt_runs(&self, row: &Sandbox, url: &Url) {
        let Ok(at) = endpoint(&*self.0.cipher, row, url) else {
            return;
        };
        let (agents, conversations) = (&self.0.agents, &self.0.conversations);
        let known = conversations.list_in_sandbox(&row.id, MAX_INTERRUPTED_CONVERSATIONS);
        for conversation in known.await.unwrap_or_default() {
            if conversation.execution_status == Some(ExecutionStatus::Running)
                && let Err(error) = agents.interrupt(&at, conversation.id).await
            {
                tracing::info!(conversation.id = %conversation.id, error = %chain(&error), "cannot interrupt a run before the pause");
            }
        }
    }

    pub(super) async fn remove_sandbox(&self, row: &Sandbox) -> Result<(), AppError> {
        self.0.lifecycle.remove(&row.id).await?;
        let (conversations, now) = (&self.0.conversations, self.0.clock.now());
        let settled = conversations.settle_running(&row.id, ExecutionStatus::Error, now);
        settled.await?;
        let removed = self.0.host_sandboxes.remove(&row.id).await;
        self.0.reporters.clear();
        removed?;
        tracing::info!(sandbox.id = %row.id, "sandbox removed");
        Ok(())
    }
}
