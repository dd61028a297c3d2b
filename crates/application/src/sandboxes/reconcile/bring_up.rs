//! Bringing a sandbox up: find it, or start it and wait until its agent server answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use domain::encryption::cipher::Sealed;
use domain::error::{Classify, ErrorClass, chain};
use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{
    BackendFact, BackendState, DesiredState, NewSessionKey, PrepareProgress, Sandbox,
    SandboxEndpoints, SandboxError, SandboxFacts, SandboxLaunch, SandboxStatus,
};
use domain::user::identity::KeyHash;
use futures::StreamExt;
use futures::stream::BoxStream;
use secrecy::ExposeSecret;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use url::Url;

use super::{GuardEnd, SandboxGuard, SandboxReconciler, SandboxSlot, start_cancelled};
use crate::AppError;
use crate::policy::EgressControl;

/// Interval of health checks while the agent server may be booting: a start is late by half of it. A refused
/// connection costs a process next to nothing; in front of a container a program of the engine may accept it first.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of health checks after [`BOOT_SLOT_HOLD_TIMEOUT`].
const SLOW_HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How long an agent server that does not answer may hold a boot slot. The boot continues without the slot.
const BOOT_SLOT_HOLD_TIMEOUT: Duration = Duration::from_secs(20);
/// A process that dies while starting is started once more before the start fails.
const MAX_START_ATTEMPTS: u32 = 2;

/// Why a starting agent server will not answer.
pub(super) enum BootFailure {
    Exited(String),
    Silent,
}

pub(super) enum ExistingSandbox {
    /// It runs, and its agent server answers.
    Answering(SandboxEndpoints),
    /// It runs, or seems to, and does not answer.
    Unresponsive,
    /// Nothing of it runs, and it can be started.
    Stopped,
    /// The backend does not know it.
    Absent,
}

enum StartFailure {
    /// A later pass tries again: the row waits, or has another intent by now.
    Retryable(AppError),
    Final(AppError),
}

impl From<AppError> for StartFailure {
    /// A failure of the store is retried by the next pass.
    fn from(error: AppError) -> Self {
        Self::Retryable(error)
    }
}

const WORKSPACE_GONE: &str = "the sandbox was removed from its host: its workspace is gone";

impl SandboxReconciler {
    pub(super) async fn bring_up(
        &self,
        mut row: Sandbox,
        guard: &mut SandboxGuard,
    ) -> Result<(Sandbox, SandboxEndpoints), AppError> {
        loop {
            let slot = Arc::clone(&guard.slot);
            let outcome = tokio::select! {
                outcome = self.find_or_start(&row, &slot) => outcome,
                end = guard.wait_for_end() => match end {
                    GuardEnd::LeaseLost => return Err(AppError::TakenOver),
                    GuardEnd::IntentChanged => {
                        // Paused or deleted: the next action follows that. Paused and resumed again: this start
                        // continues.
                        let now = self.row(&row.id).await?;
                        let wanted = |row: &Sandbox| row.desired == DesiredState::Running && row.status.is_up();
                        row = now.filter(wanted).ok_or_else(start_cancelled)?;
                        continue;
                    }
                },
            };
            return match outcome {
                Ok(started) => Ok(started),
                Err(StartFailure::Retryable(error)) => Err(error),
                Err(StartFailure::Final(error)) => {
                    guard
                        .unless_lease_lost(self.record_failure(&row, &error))
                        .await?;
                    Err(error)
                }
            };
        }
    }

    async fn find_or_start(
        &self,
        row: &Sandbox,
        slot: &Arc<SandboxSlot>,
    ) -> Result<(Sandbox, SandboxEndpoints), StartFailure> {
        let mut row = row.clone();
        let may_be_dormant = match self.find_answering(&row).await {
            Ok(ExistingSandbox::Answering(endpoints)) => return Ok((row, endpoints)),
            // It ran before, so a start would replace the lost workspace by an empty one.
            Ok(ExistingSandbox::Absent) if row.workspace.is_some() => {
                let detail = WORKSPACE_GONE.to_owned();
                let facts = SandboxFacts::Missing { detail };
                self.record(&row, DesiredState::Running, &facts).await?;
                let gone = AppError::refused(ErrorClass::Gone, WORKSPACE_GONE);
                return Err(StartFailure::Retryable(gone));
            }
            // A new sandbox gets everything from its environment.
            Ok(ExistingSandbox::Absent) => false,
            Ok(ExistingSandbox::Unresponsive) => true,
            Ok(ExistingSandbox::Stopped) => {
                row = self.replace_session_key(row).await?;
                true
            }
            Err(error) => return Err(self.record_unreachable(&row, error).await),
        };
        let endpoints = self
            .start_and_wait(&row, slot, may_be_dormant)
            .await
            .map_err(StartFailure::Final)?;
        let facts = SandboxFacts::Running {
            endpoints: endpoints.clone(),
        };
        if !self.record(&row, DesiredState::Running, &facts).await? {
            return Err(StartFailure::Retryable(start_cancelled()));
        }
        self.0.syncer.request(&row.id);
        Ok((row, endpoints))
    }

    /// Replaces the session key before a stopped sandbox starts, so that the former key opens nothing. A later crash, or a
    /// failed start, leaves an unused key in the row; the next start replaces it again.
    async fn replace_session_key(&self, row: Sandbox) -> Result<Sandbox, AppError> {
        // Without a callback token, conversations hold the session key, which must remain valid.
        let is_held = row.callback_token_hash.is_none();
        if is_held || !self.0.backend.capabilities().replaces_session_key {
            return Ok(row);
        }
        let key = self.0.ids.secret();
        let new = NewSessionKey {
            hash: KeyHash::of(key.expose_secret()),
            sealed: self.0.cipher.seal(&Sandbox::key_context(&row.id), &key)?,
        };
        let (keys, now) = (&self.0.sandbox_keys, self.0.clock.now());
        let replaced = keys
            .replace_session_key(&row.id, &row.key_hash, &new, now)
            .await;
        self.0.reporters.clear();
        replaced?.ok_or_else(start_cancelled)
    }

    /// Ends a failed start.
    async fn record_failure(&self, row: &Sandbox, error: &AppError) -> Result<(), AppError> {
        // Nothing may run behind a row in ERROR: its capacity counts as free.
        if let Err(stop) = self.0.lifecycle.stop(&row.id).await
            && !matches!(stop, SandboxError::NotFound)
        {
            tracing::warn!(sandbox.id = %row.id, error = %chain(&stop), "cannot stop a failed sandbox; its start still counts as failed");
        }
        let detail = error.public().into_owned();
        self.record(row, DesiredState::Running, &SandboxFacts::Error { detail })
            .await?;
        Ok(())
    }

    /// Handles an unreachable backend: a STARTING row shows the cause while it waits for the next pass.
    async fn record_unreachable(&self, row: &Sandbox, error: AppError) -> StartFailure {
        let waits = matches!(
            error,
            AppError::Sandbox(SandboxError::Unavailable { .. } | SandboxError::TimedOut { .. })
        );
        if !waits {
            return StartFailure::Final(error);
        }
        if row.status == SandboxStatus::Starting {
            let detail = error.public().into_owned();
            let facts = SandboxFacts::Preparing { detail };
            if let Err(error) = self.record(row, DesiredState::Running, &facts).await {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot record why a start waits");
            }
        }
        StartFailure::Retryable(error)
    }

    /// Finds a sandbox that runs and answers, also after a restart of the service.
    pub(super) async fn find_answering(&self, row: &Sandbox) -> Result<ExistingSandbox, AppError> {
        let endpoints = match self.0.lifecycle.inspect(&row.id).await? {
            Some(BackendState::Running(endpoints)) => endpoints,
            Some(BackendState::Absent) | None => return Ok(ExistingSandbox::Absent),
            Some(BackendState::Stopped | BackendState::Exited { .. } | BackendState::Remains) => {
                return Ok(ExistingSandbox::Stopped);
            }
        };
        let is_woken = self.try_wake_immediately(row, &endpoints.agent_url).await;
        let agents = &self.0.agent_lifecycle;
        if !is_woken && !agents.is_alive(&row.id, &endpoints.agent_url).await {
            return Ok(ExistingSandbox::Unresponsive);
        }
        if row.status != SandboxStatus::Running
            || row.agent_url.as_deref() != Some(&endpoints.agent_url)
            || row.has_proxy != endpoints.has_proxy
        {
            if !is_woken && let Err(error) = self.wake_up(row, &endpoints.agent_url).await {
                return self.replace_unwakeable(row, error).await;
            }
            let facts = SandboxFacts::Running {
                endpoints: endpoints.clone(),
            };
            self.record(row, DesiredState::Running, &facts).await?;
            self.0.syncer.request(&row.id);
        }
        Ok(ExistingSandbox::Answering(endpoints))
    }

    /// Prepares the backend (downloads on first use) within the deadline.
    pub(crate) async fn prepare_backend(
        &self,
        spec: &SpecId,
        progress: &PrepareProgress,
    ) -> Result<(), AppError> {
        let work = self.0.backend.prepare(spec, progress);
        let prepared = tokio::time::timeout(self.0.policy.prepare_timeout, work).await;
        let what = "preparing the sandbox backend";
        Ok(prepared.unwrap_or(Err(SandboxError::TimedOut { what }))?)
    }

    /// Shows in the row what the work reports to the slot's [`SandboxSlot::progress`].
    async fn showing_progress<T>(
        &self,
        row: &Sandbox,
        slot: &SandboxSlot,
        work: impl Future<Output = T>,
    ) -> T {
        let done = tokio::select! {
            biased;
            done = work => done,
            never = self.show_progress(row) => match never {},
        };
        slot.progress.send_replace(None);
        done
    }

    async fn show_progress(&self, row: &Sandbox) -> Infallible {
        let mut lines = self.progress(&row.id);
        loop {
            let detail = lines.next().await;
            let facts = SandboxFacts::Preparing { detail };
            if let Err(error) = self.record(row, DesiredState::Running, &facts).await {
                tracing::debug!(sandbox.id = %row.id, error = %chain(&error), "cannot record the progress of a start");
            }
        }
    }

    /// Starts the sandbox. `may_be_dormant`: it was created before, perhaps to boot dormant each time.
    async fn start_and_wait(
        &self,
        row: &Sandbox,
        slot: &Arc<SandboxSlot>,
        may_be_dormant: bool,
    ) -> Result<SandboxEndpoints, AppError> {
        let policy = &self.0.policy;
        check_list(row, policy.egress)?;
        let progress = slot.progress();
        let work = self.prepare_backend(&row.spec_id, &progress);
        self.showing_progress(row, slot, work).await?;
        // A slot, because more boots than cores only slow all of them down.
        let mut boot = self.0.boots.acquire().await;
        let keys = (&row.session_key, &row.secret_key);
        let launch = SandboxLaunch {
            progress,
            ..self.launch(&row.id, row.owner.clone(), &row.spec_id, keys)?
        };
        let mut last = None;
        for attempt in 1..=MAX_START_ATTEMPTS {
            let mut exits = self.0.lifecycle.watch();
            let start = self.0.lifecycle.start(&launch);
            let endpoints = match self.showing_progress(row, slot, start).await {
                // It may end before the backend can report its address.
                Err(SandboxError::StartFailed { detail, .. }) if attempt < MAX_START_ATTEMPTS => {
                    tracing::warn!(sandbox.id = %row.id, attempt, cause = first_line(&detail), "sandbox ended during its start; starting it again");
                    continue;
                }
                started => started?,
            };
            let facts = SandboxFacts::Starting {
                endpoints: endpoints.clone(),
            };
            self.record(row, DesiredState::Running, &facts).await?;
            let url = &endpoints.agent_url;
            match self
                .wait_until_booted(&row.id, url, &mut exits, &mut boot)
                .await
            {
                Ok(()) => {
                    // The boot is over; free the slot.
                    drop(boot.take());
                    if may_be_dormant {
                        self.wake_up(row, &endpoints.agent_url).await?;
                    }
                    return Ok(endpoints);
                }
                Err(BootFailure::Exited(detail)) => {
                    tracing::warn!(sandbox.id = %row.id, attempt, cause = first_line(&detail), "agent server ended during its start");
                    last = Some(detail);
                }
                Err(BootFailure::Silent) => {
                    let seconds = policy.sandbox_start_timeout.as_secs();
                    return Err(start_failed(format!(
                        "the agent server did not answer within {seconds}s; raise `start.sandbox_deadline` or read the \
                         sandbox's log"
                    )));
                }
            }
        }
        let detail = last.unwrap_or_default();
        Err(start_failed(format!(
            "the agent server exited during start ({MAX_START_ATTEMPTS} attempts): {detail}"
        )))
    }

    /// Waits until the agent server answers. One that hangs frees its boot slot after [`BOOT_SLOT_HOLD_TIMEOUT`].
    async fn wait_until_booted(
        &self,
        id: &SandboxId,
        url: &Url,
        exits: &mut BoxStream<'static, BackendFact>,
        boot: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<(), BootFailure> {
        let mut alive = std::pin::pin!(self.wait_until_alive(id, url, exits));
        loop {
            tokio::select! {
                biased;
                outcome = &mut alive => return outcome,
                () = tokio::time::sleep(BOOT_SLOT_HOLD_TIMEOUT), if boot.is_some() => *boot = None,
            }
        }
    }

    pub(super) fn launch(
        &self,
        id: &SandboxId,
        owner: OwnerId,
        spec: &SpecId,
        (session_key, secret_key): (&Sealed, &Sealed),
    ) -> Result<SandboxLaunch, AppError> {
        let context = Sandbox::key_context(id);
        let (cipher, policy) = (&self.0.cipher, &self.0.policy);
        Ok(SandboxLaunch {
            id: id.clone(),
            owner,
            spec: spec.clone(),
            session_key: cipher.open(&context, session_key)?,
            secret_key: cipher.open(&context, secret_key)?,
            webhook_url: policy.webhook_url.clone(),
            cors_origins: policy.cors_origins.clone(),
            dormant: false,
            progress: PrepareProgress::silent(),
        })
    }

    /// Checks health until the agent server answers, its process ends, or the deadline passes.
    pub(super) async fn wait_until_alive(
        &self,
        id: &SandboxId,
        url: &Url,
        exits: &mut BoxStream<'static, BackendFact>,
    ) -> Result<(), BootFailure> {
        let healthy = async {
            let began = Instant::now();
            while !self.0.agent_lifecycle.is_alive(id, url).await {
                let is_late = began.elapsed() > BOOT_SLOT_HOLD_TIMEOUT;
                tokio::time::sleep(if is_late {
                    SLOW_HEALTH_CHECK_INTERVAL
                } else {
                    HEALTH_CHECK_INTERVAL
                })
                .await;
            }
        };
        let death = async {
            while let Some(fact) = exits.next().await {
                if fact.id == *id {
                    match fact.state {
                        BackendState::Exited { detail } => return detail,
                        BackendState::Absent | BackendState::Remains | BackendState::Stopped => {
                            return "it was removed".to_owned();
                        }
                        BackendState::Running(_) => {}
                    }
                }
            }
            // The stream ended because the backend shuts down: only the deadline is left.
            std::future::pending().await
        };
        tokio::select! {
            () = healthy => Ok(()),
            detail = death => Err(BootFailure::Exited(detail)),
            () = tokio::time::sleep(self.0.policy.sandbox_start_timeout) => Err(BootFailure::Silent),
        }
    }
}

/// Fails if nothing enforces the list of a sandbox any more.
fn check_list(row: &Sandbox, control: EgressControl) -> Result<(), AppError> {
    match (&row.egress, control) {
        (Some(_), EgressControl::Unlimited) => Err(start_failed(
            "its owner limited it to certain hosts, which this service no longer enforces, because its egress.policy is open; ask the \
             operator to set egress.policy to allow_list, or start in a new sandbox"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

pub(super) fn start_failed(detail: String) -> AppError {
    SandboxError::StartFailed {
        detail,
        source: None,
    }
    .into()
}

/// The first line: the rest is output of the sandbox, which belongs to its owner and not into the operator's log.
pub(super) fn first_line(detail: &str) -> &str {
    detail.lines().next().unwrap_or_default()
}
