//! Waking of dormant agent servers: warm sandboxes that a start has claimed, and containers that boot dormant each
//! time.

use std::time::Duration;

use domain::agent::{AgentError, InitRequest};
use domain::error::chain;
use domain::id::OwnerId;
use domain::sandbox::{Sandbox, SandboxEndpoints, SandboxLaunch, SandboxStatus, WarmSandbox};
use tokio::time::Instant;
use url::Url;

use super::bring_up::{BootFailure, ExistingSandbox, start_failed};
use super::{BootSlots, SandboxReconciler};
use crate::AppError;

/// Owner of warm sandboxes in labels of backends.
const WARM_OWNER: &str = "nobody";
/// Attempts of a failed request, and the pause between two.
const MAX_WAKE_ATTEMPTS: u32 = 4;
const WAKE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of the immediate attempt, before the sandbox is inspected.
const IMMEDIATE_WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of all attempts together: no other task acts on the sandbox meanwhile.
const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

impl SandboxReconciler {
    /// Wakes a claimed warm sandbox without another check, because the claim has just made one. Returns `false` where
    /// the sandbox cannot be one, or on failure; then its state is unknown.
    pub(super) async fn try_wake_immediately(&self, row: &Sandbox, url: &Url) -> bool {
        let is_new = row.status == SandboxStatus::Starting && row.workspace.is_none();
        if !is_new || self.0.policy.warm.target_count == 0 {
            return false;
        }
        let Ok(init_request) = self.init_request(row) else {
            return false;
        };
        let waking = self.0.agent_lifecycle.wake(&row.id, url, &init_request);
        matches!(
            tokio::time::timeout(IMMEDIATE_WAKE_TIMEOUT, waking).await,
            Ok(Ok(()))
        )
    }

    /// Sends the sandbox's keys to its agent server if that is dormant. Called before any row shows that the sandbox
    /// runs.
    pub(super) async fn wake_up(&self, row: &Sandbox, url: &Url) -> Result<(), AppError> {
        let (agents, until) = (&self.0.agent_lifecycle, Instant::now() + WAKE_TIMEOUT);
        let is_dormant = match retry_until(until, || agents.is_dormant(&row.id, url)).await {
            Err(error) if !self.may_be_dormant(&error) => {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot tell whether an agent server is dormant; assuming that it is not");
                false
            }
            other => other.map_err(|error| cannot_wake(&error))?,
        };
        if is_dormant {
            let init_request = self.init_request(row)?;
            let woken = retry_until(until, || agents.wake(&row.id, url, &init_request)).await;
            woken.map_err(|error| cannot_wake(&error))?;
            tracing::debug!(sandbox.id = %row.id, "dormant agent server woken");
        }
        Ok(())
    }

    /// Whether an agent server that fails this request may be dormant. No agent server returns 5xx for it; a proxy in
    /// a custom image may.
    fn may_be_dormant(&self, error: &AgentError) -> bool {
        self.0.policy.warm.target_count > 0 && !matches!(error, AgentError::Rejected { .. })
    }

    /// Handles an agent server that answers but cannot be woken. One that never ran has nothing to lose: it is
    /// removed, and a cold start follows.
    pub(super) async fn replace_unwakeable(
        &self,
        row: &Sandbox,
        error: AppError,
    ) -> Result<ExistingSandbox, AppError> {
        if row.workspace.is_some() {
            return Err(error);
        }
        tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "cannot wake a warm sandbox; starting a cold one in its place");
        self.0.lifecycle.remove(&row.id).await?;
        Ok(ExistingSandbox::Absent)
    }

    /// The values that a cold start gets from its environment.
    fn init_request(&self, row: &Sandbox) -> Result<InitRequest, AppError> {
        let context = Sandbox::key_context(&row.id);
        let (cipher, policy) = (&self.0.cipher, &self.0.policy);
        Ok(InitRequest {
            session_key: cipher.open(&context, &row.session_key)?,
            secret_key: cipher.open(&context, &row.secret_key)?,
            webhook_url: policy.webhook_url.clone(),
            cors_origins: policy.cors_origins.clone(),
        })
    }

    pub(crate) fn boots(&self) -> &BootSlots {
        &self.0.boots
    }

    /// Boots a warm sandbox and waits until its agent server answers.
    pub(crate) async fn boot_spare(&self, row: &WarmSandbox) -> Result<SandboxEndpoints, AppError> {
        let owner = OwnerId::parse(WARM_OWNER)
            .map_err(|_| AppError::invalid("invalid owner of warm sandboxes"))?;
        let keys = (&row.session_key, &row.secret_key);
        let launch = SandboxLaunch {
            dormant: true,
            ..self.launch(&row.id, owner, &row.spec_id, keys)?
        };
        let lifecycle = &self.0.lifecycle;
        let mut exits = lifecycle.watch();
        let endpoints = lifecycle.start(&launch).await?;
        let booted = self.wait_until_alive(&row.id, &endpoints.agent_url, &mut exits);
        let detail = match booted.await {
            Ok(()) => return Ok(endpoints),
            Err(BootFailure::Exited(detail)) => format!("it exited during start: {detail}"),
            Err(BootFailure::Silent) => {
                let seconds = self.0.policy.sandbox_start_timeout.as_secs();
                format!("it did not answer within {seconds}s")
            }
        };
        Err(start_failed(detail))
    }
}

/// Retries until there is a response, or a final refusal.
async fn retry_until<T, F>(until: Instant, request: impl Fn() -> F) -> Result<T, AgentError>
where
    F: Future<Output = Result<T, AgentError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        let done = tokio::time::timeout_at(until, request()).await;
        match done.unwrap_or(Err(AgentError::TimedOut(WAKE_TIMEOUT))) {
            // The agent server may still be booting.
            Err(error)
                if tries < MAX_WAKE_ATTEMPTS && !is_refusal(&error) && Instant::now() < until =>
            {
                tracing::debug!(error = %chain(&error), "an agent server that may be dormant does not answer yet; trying again");
                tokio::time::sleep(WAKE_RETRY_INTERVAL * tries).await;
            }
            done => return done,
        }
    }
}

fn cannot_wake(error: &AgentError) -> AppError {
    start_failed(format!(
        "the agent server did not take its keys and settings: {error}"
    ))
}

fn is_refusal(error: &AgentError) -> bool {
    matches!(error, AgentError::Rejected { status, .. } if *status < 500)
}
