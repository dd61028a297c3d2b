//! Agent servers that were booted dormant: one booted in advance that has become somebody's, or a container that boots
//! dormant each time it starts.

use std::time::Duration;

use domain::agent::{AgentError, InitRequest};
use domain::error::chain;
use domain::sandbox::{SandboxEndpoints, Sandbox, SandboxLaunch, SandboxStatus};
use tokio::time::Instant;
use url::Url;

use super::up::{Death, Found, start_failed};
use super::{Boots, SandboxReconciler};
use crate::AppError;

/// How often one that answers, but not this question, is asked; and how long is waited between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);
/// How long one that must be there is waited for before it is looked at more closely.
const AT_ONCE: Duration = Duration::from_secs(2);
/// For all of that together: nobody else acts on the sandbox meanwhile.
const LONGEST: Duration = Duration::from_secs(30);

impl SandboxReconciler {
    /// Wakes a warm one that has just become somebody's, without asking first what the claim has asked a moment ago. `false`
    /// where that cannot be it, or did not succeed: then nothing is known.
    pub(super) async fn is_woken_at_once(&self, row: &Sandbox, url: &Url) -> bool {
        let is_new = row.status == SandboxStatus::Starting && row.workspace.is_none();
        if !is_new || self.0.policy.warm.keep == 0 {
            return false;
        }
        let Ok(awakening) = self.awakening(row) else {
            return false;
        };
        let waking = self.0.ports.agents.wake(&row.id, url, &awakening);
        matches!(tokio::time::timeout(AT_ONCE, waking).await, Ok(Ok(())))
    }

    /// Tells the agent server who it is, if it waits for that. To be called before anything says that it runs.
    pub(super) async fn wake_up(&self, row: &Sandbox, url: &Url) -> Result<(), AppError> {
        let (agents, until) = (&self.0.ports.agents, Instant::now() + LONGEST);
        let sleeps = match patiently(until, || agents.is_dormant(&row.id, url)).await {
            Err(error) if !self.may_sleep(&error) => {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "not known whether it sleeps; taken for awake");
                false
            }
            other => other.map_err(|error| cannot_wake(&error))?,
        };
        if sleeps {
            let awakening = self.awakening(row)?;
            let woken = patiently(until, || agents.wake(&row.id, url, &awakening)).await;
            woken.map_err(|error| cannot_wake(&error))?;
            tracing::debug!(sandbox.id = %row.id, "dormant agent server woken");
        }
        Ok(())
    }

    /// Whether one that answers, but not this question, may be dormant all the same. No agent server says 5xx of itself: it
    /// is a proxy of an image of somebody's own.
    fn may_sleep(&self, error: &AgentError) -> bool {
        self.0.policy.warm.keep > 0 && !matches!(error, AgentError::Rejected { .. })
    }

    /// It answers and cannot be woken. One that never ran has nothing to lose: it goes, and a cold one takes its place.
    pub(super) async fn not_woken(
        &self,
        row: &Sandbox,
        error: AppError,
    ) -> Result<Found, AppError> {
        if row.workspace.is_some() {
            return Err(error);
        }
        tracing::warn!(sandbox.id = %row.id, error = %chain(&error), "a warm sandbox could not be woken; starting a cold one in its place");
        self.0.ports.backend.remove(&row.id).await?;
        Ok(Found::Nothing)
    }

    /// All that a cold start is told by its environment.
    fn awakening(&self, row: &Sandbox) -> Result<InitRequest, AppError> {
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
    pub(crate) fn boots(&self) -> &Boots {
        &self.0.boots
    }

    /// Starts what nobody has asked for yet, and waits until it answers.
    pub(crate) async fn boot_ahead(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, AppError> {
        let backend = &self.0.ports.backend;
        let mut exits = backend.watch();
        let located = backend.start(launch).await?;
        let booted = self.wait_until_alive(&launch.id, &located.agent_url, &mut exits);
        let detail = match booted.await {
            Ok(()) => return Ok(located),
            Err(Death::Exited(detail)) => format!("it ended while starting: {detail}"),
            Err(Death::Silent) => {
                let seconds = self.0.policy.sandbox_start_deadline.as_secs();
                format!("it did not answer within {seconds}s")
            }
        };
        Err(start_failed(detail))
    }
}

/// Asks until there is an answer, or asking again is of no use.
async fn patiently<T, F>(until: Instant, ask: impl Fn() -> F) -> Result<T, AgentError>
where
    F: Future<Output = Result<T, AgentError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        let done = tokio::time::timeout_at(until, ask()).await;
        match done.unwrap_or(Err(AgentError::TimedOut(LONGEST))) {
            // It may still be busy with its boot.
            Err(error) if tries < TRIES && !is_final(&error) && Instant::now() < until => {
                tracing::debug!(error = %chain(&error), "a sandbox that may be dormant does not answer yet");
                tokio::time::sleep(PAUSE * tries).await;
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
fn is_final(error: &AgentError) -> bool {
    matches!(error, AgentError::Rejected { status, .. } if *status < 500)
}
