//! Runs the automations service: starts it on first use, and again after its end. Or looks whether it answers elsewhere.

mod cleanup;
mod elsewhere;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use application::KnownHosts;
use domain::clock::Clock;
use domain::error::chain;
use domain::sandbox::{
    BackendState, PrepareProgress, SandboxBackend, SandboxError, SandboxLaunch, SandboxLifecycle,
};
use futures::StreamExt as _;
use http_api::AutomationsStatus;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::compose::adapters::AutomationsClient;

pub(crate) use self::cleanup::{ProcessStart, RunCleanup};
pub(crate) use self::elsewhere::AutomationsProbe;

const MIN_RESTART_BACKOFF: Duration = Duration::from_secs(1);
const MAX_RESTART_BACKOFF: Duration = Duration::from_secs(5 * 60);
/// A process that has run this long starts again at once after its end.
const STABLE_AFTER: Duration = Duration::from_secs(10 * 60);
/// Longest time from its start to its first answer. The first start creates the database.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of checks that the process exists, in case its end was not reported, and whether this host keeps the automations now.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) const STARTING: &str =
    "The automations service is starting. Its first start installs it, which takes some minutes.";

const ELSEWHERE: &str = "Automations run on another host of this installation. The proxy in front of it must send /api/automation/ \
     there.";

/// The automations service, which runs while [`AutomationsRunner::run`] does.
pub(crate) struct AutomationsRunner {
    pub(crate) backend: Arc<dyn SandboxBackend>,
    pub(crate) lifecycle: Arc<dyn SandboxLifecycle>,
    pub(crate) client: AutomationsClient,
    pub(crate) launch: SandboxLaunch,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) status: watch::Sender<AutomationsStatus>,
    pub(crate) process_start: Arc<ProcessStart>,
    /// Notified when a user asks for automations.
    pub(crate) wanted: Arc<Notify>,
    /// Set before the process is stopped, so that it is not started again.
    pub(crate) is_stopping: AtomicBool,
    /// Whether it was used before. Then it starts with the service, because automations may be due.
    pub(crate) is_in_use: bool,
}

impl AutomationsRunner {
    /// Runs until [`AutomationsRunner::stop`], on the host that keeps the automations.
    pub(crate) async fn run(self: Arc<Self>, hosts: KnownHosts) {
        if !self.is_in_use {
            self.wanted.notified().await;
        }
        let mut backoff = MIN_RESTART_BACKOFF;
        loop {
            self.wait_until_kept(&hosts).await;
            let started_at = Instant::now();
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            let cause = match self.start().await {
                Ok(url) => {
                    tracing::info!("the automations service answers");
                    self.status.send_replace(AutomationsStatus::Running(url));
                    self.wait_until_ended(&hosts).await
                }
                Err(error) => chain(&error),
            };
            if started_at.elapsed() >= STABLE_AFTER {
                backoff = MIN_RESTART_BACKOFF;
            }
            tracing::warn!(
                cause,
                "the automations service does not run; starting it again in {} s",
                backoff.as_secs()
            );
            let text = "The automations service has failed and starts again soon; its log is in the service's data directory.";
            self.status
                .send_replace(AutomationsStatus::Unavailable(text.to_owned()));
            sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_RESTART_BACKOFF);
        }
    }

    /// While another host keeps the automations, no process runs here, also none from before.
    async fn wait_until_kept(&self, hosts: &KnownHosts) {
        let mut was_logged = false;
        loop {
            match hosts.keeps_automations().await {
                Ok(true) => return,
                Ok(false) => {
                    if !was_logged {
                        was_logged = true;
                        tracing::info!("automations are off here: another host keeps them");
                    }
                    self.status
                        .send_replace(AutomationsStatus::Unavailable(ELSEWHERE.to_owned()));
                    self.stop_process().await;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot ask which host keeps the automations");
                }
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Ends the process. What it has begun continues with its next start.
    pub(crate) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stop_process().await;
    }

    async fn stop_process(&self) {
        let stopped = timeout(STOP_TIMEOUT, self.lifecycle.stop(&self.launch.id)).await;
        if let Ok(Err(error)) = stopped
            && !matches!(error, SandboxError::NotFound)
        {
            tracing::warn!(error = %chain(&error), "cannot stop the automations service; the next start of this service adopts it");
        }
    }

    /// Starts the process, or adopts the running one. Returns its address as soon as it answers.
    async fn start(&self) -> Result<Url, SandboxError> {
        let progress = PrepareProgress::silent();
        self.backend.prepare(&self.launch.spec, &progress).await?;
        self.backend.check().await?;
        let id = &self.launch.id;
        let is_there = matches!(
            self.lifecycle.inspect(id).await?,
            Some(BackendState::Running(_))
        );
        let process_start = (!is_there).then(|| self.clock.now());
        let url = self.lifecycle.start(&self.launch).await?.agent_url;
        let deadline = Instant::now() + BOOT_TIMEOUT;
        while !self.client.is_ready(&url).await {
            if let Some(cause) = self.end().await {
                return Err(SandboxError::StartFailed {
                    detail: cause,
                    source: None,
                });
            }
            if Instant::now() >= deadline {
                return Err(SandboxError::TimedOut {
                    what: "waiting for the automations service to answer",
                });
            }
            sleep(PROBE_INTERVAL).await;
        }
        if process_start.is_some() {
            self.process_start.set(process_start);
        }
        Ok(url)
    }

    /// Why the process does not run; `None` while it does.
    async fn end(&self) -> Option<String> {
        match self.lifecycle.inspect(&self.launch.id).await {
            Ok(Some(BackendState::Exited { detail })) => Some(detail),
            Ok(
                Some(BackendState::Stopped | BackendState::Remains | BackendState::Absent) | None,
            ) => Some("it was stopped".to_owned()),
            Ok(Some(_)) => None,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot look at the automations service");
                None
            }
        }
    }

    async fn wait_until_ended(&self, hosts: &KnownHosts) -> String {
        let mut facts = self.lifecycle.watch();
        loop {
            if let Some(cause) = self.end().await {
                return cause;
            }
            tokio::select! {
                _ = facts.next() => {}
                () = sleep(CHECK_INTERVAL) => {
                    // It was removed while it seemed lost.
                    if matches!(hosts.keeps_automations().await, Ok(false)) {
                        return "another host keeps the automations".to_owned();
                    }
                }
            }
        }
    }
}
