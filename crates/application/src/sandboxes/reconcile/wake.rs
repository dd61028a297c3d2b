//! Agent servers that were booted dormant: one booted in advance that has become somebody's, or a container that boots
//! dormant each time it starts.

use std::time::Duration;

use domain::agent::{AgentError, InitRequest};
use domain::error::chain;
use domain::sandbox::{SandboxEndpoints, Sandbox, SandboxLaunch, SandboxStatus};
use tokio::time::Instant;
use url::Url;

use super::bring_up::{BootFailure, ExistingSandbox, start_failed};
use super::{BootSlots, SandboxReconciler};
use crate::AppError;

/// How often one that answers, but not this question, is asked; and how long is waited between.
const MAX_WAKE_ATTEMPTS: u32 = 4;
const WAKE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long one that must be there is waited for before it is looked at more closely.
const IMMEDIATE_WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// For all of that together: nobody else acts on the sandbox meanwhile.
const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

impl SandboxReconciler {
    /// Wakes a warm one that has just become somebody's, without asking first what the claim has asked a moment ago. `false`
    /// where that cannot be it, or did not succeed: then nothing is known.
    pub(super) async fn try_wake_immediately(&self, row: &Sandbox, url: &Url) -> bool {
        let is_new = row.status == SandboxStatus::Starting && row.workspace.is_none();
        if !is_new || self.0.policy.warm.keep == 0 {
            return false;
        }
        let Ok(init_request) = self.init_request(row) else {
            return false;
        };
        let waking = self.0.ports.agents.wake(&row.id, url, &init_request);
        matches!(tokio::time::timeout(IMMEDIATE_WAKE_TIMEOUT, waking).await, Ok(Ok(())))
    }

    /// Tells the agent server who it is, if it waits for that. To be called before anything says that it runs.
    pub(super) async fn wake_up(&self, row: &Sandbox, url: &Url) -> Result<(), AppError> {
        let (agents, until) = (&self.0.ports.agents, Instant::now() + WAKE_TIMEOUT);
        let sleeps = match retry_until(until, || agents.is_dormant(&row.id, url)).await {
            Err(error) if !self.may_be_dormant(&error) => {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "not known whether it sleeps; taken for awake");
                false
            }
            other => other.map_err(|error| cannot_wake(&error))?,
        };
        if sleeps {
            let init_request = self.init_request(row)?;
            let woken = retry_until(until, || agents.wake(&row.id, url, &init_request)).await;
            woken.map_err(|error| cannot_wake(&error))?;
            tracing::debug!(sandbox.id = %row.id, "dormant agent server woken");
        }
        Ok(())
    }

    /// Whether one that answers, but not this question, may be dormant all the same. No agent server says 5xx of itself: it
    /// is a proxy of an image of somebody's own.
    fn may_be_dormant(&self, error: &AgentError) -> bool {
        self.0.policy.warm.keep > 0 && !matches!(error, AgentError::Rejected { .. })
    }

    /// It answers and cannot be woken. One that never ran has nothing to lose: it goes, and a cold one takes its place.
    pub(super) async fn replace_unwakeable(
        &self,
        row: &Sandbox,
        error: AppError,
    ) -> Result<ExistingSandbox, AppError> {
        if row.workspace.is_some() {
            return Err(error);
        }
        tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "a warm sandbox could not be woken; starting a cold one in its place");
        self.0.ports.backend.remove(&row.id).await?;
        Ok(ExistingSandbox::Absent)
    }

    /// All that a cold start is told by its environment.
    fn init_request(&self, row: &Sandbox) -> Result<InitRequest, AppError> {
        let context = Sandbox::key_context(&row.id);
        let (cipher, policy) = (&self.0.ports.cipher, &self.0.policy);
        Ok(InitRequest {
            session_key: cipher.open(&context, &row.session_key)?,
            secret_key: cipher.open(&context, &row.secret_key)?,
            webhook_url: policy.webhook_url.clone(),
            cors_origins: policy.cors_origins.clone(),
        })
    }

    /// Turns to boot.
    pub(crate) fn boots(&self) -> &BootSlots {
        &self.0.boots
    }

    /// Starts what nobody has asked for yet, and waits until it answers.
    pub(crate) async fn boot_spare(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, AppError> {
        let backend = &self.0.ports.backend;
        let mut exits = backend.watch();
        let endpoints = backend.start(launch).await?;
        let booted = self.wait_until_alive(&launch.id, &endpoints.agent_url, &mut exits);
        let detail = match booted.await {
            Ok(()) => return Ok(endpoints),
            Err(BootFailure::Exited(detail)) => format!("it ended while starting: {detail}"),
            Err(BootFailure::Silent) => {
                let seconds = self.0.policy.sandbox_start_deadline.as_secs();
                format!("it did not answer within {seconds}s")
            }
        };
        Err(start_failed(detail))
    }
}

/// Asks until there is an answer, or asking again is of no use.
async fn retry_until<T, F>(until: Instant, ask: impl Fn() -> F) -> Result<T, AgentError>
where
    F: Future<Output = Result<T, AgentError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        let done = tokio::time::timeout_at(until, ask()).await;
        match done.unwrap_or(Err(AgentError::TimedOut(WAKE_TIMEOUT))) {
            // It may still be busy with its boot.
            Err(error) if tries < MAX_WAKE_ATTEMPTS && !is_refusal(&error) && Instant::now() < until => {
                tracing::debug!(error = %chain(&error), "a sandbox that may be dormant does not answer yet");
                tokio::time::sleep(WAKE_RETRY_INTERVAL * tries).await;
            }
            done => return done,
        }
    }
}

fn cannot_wake(error: &AgentError) -> AppError {
    start_failed(format!(
        "the agent server answers, but could not be given its keys: {error}"
    ))
}

/// Whether asking again is of no use.
fn is_refusal(error: &AgentError) -> bool {
    matches!(error, AgentError::Rejected { status, .. } if *status < 500)
}
