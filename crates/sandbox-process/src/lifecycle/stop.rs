//! Stops and removes sandboxes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use domain::crash_point;
use domain::error::chain;
use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxError};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::backend::ProcessInner;
use crate::confinement::control;
use crate::errors::{self, blocking};
use crate::files::lock::SandboxFileLock;
use crate::files::state::{LifecyclePhase, ProcessState};
use crate::processes::marker;
use crate::processes::pidfd::PidHandle;
use crate::processes::proc::{self, ProcessKey};

/// Whether the agent server may finish its work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMode {
    Graceful,
    Immediate,
}

const REAP_TIMEOUT: Duration = Duration::from_secs(5);

impl ProcessInner {
    pub(crate) async fn stop(self: &Arc<Self>, id: &SandboxId) -> Result<(), SandboxError> {
        let _lock = self.lock_existing(id).await?;
        self.end_processes(id, StopMode::Graceful, LifecyclePhase::Stopped)
            .await
    }

    /// Stops a running sandbox on the service's own decision, and reports the cause.
    pub(crate) async fn stop_for_cause(
        self: &Arc<Self>,
        id: &SandboxId,
        detail: String,
    ) -> Result<(), SandboxError> {
        let _lock = self.lock_existing(id).await?;
        let state = self.load(id).await?;
        if state.is_none_or(|state| state.phase != LifecyclePhase::Running) {
            return Ok(());
        }
        tracing::warn!(sandbox.id = %id, cause = detail, "sandbox {id} stopped by the service");
        let exited = LifecyclePhase::Exited {
            detail: detail.clone(),
        };
        self.end_processes(id, StopMode::Graceful, exited).await?;
        self.tasks.report(BackendFact {
            id: id.clone(),
            state: BackendState::Exited { detail },
        });
        Ok(())
    }

    pub(crate) async fn remove(self: &Arc<Self>, id: &SandboxId) -> Result<(), SandboxError> {
        let _guard = match self.lock_existing(id).await {
            Err(SandboxError::NotFound) => return Ok(()),
            other => other?,
        };
        self.end_processes(id, StopMode::Immediate, LifecyclePhase::Stopped)
            .await?;
        let paths = self.paths(id);
        let deleted = blocking(move || {
            paths.delete()?;
            crash_point::around("process: deleting its lock", || {
                fs::remove_file(&paths.lock)
            })
        });
        deleted.await?.map_err(errors::removal_failed)?;
        tracing::info!(sandbox.id = %id, "sandbox {id} removed");
        Ok(())
    }

    /// Locks a sandbox that has a directory or a process. Removes the lock file of a sandbox that has neither.
    pub(crate) async fn lock_existing(
        self: &Arc<Self>,
        id: &SandboxId,
    ) -> Result<SandboxFileLock, SandboxError> {
        let lock = self.lock(id).await?;
        let (paths, instance, sandbox) = (self.paths(id), self.config.instance.clone(), id.clone());
        let exists = blocking(move || {
            let exists = paths.root.exists()
                || paths.short.exists()
                || marker::has_processes(&instance, &sandbox);
            if !exists {
                let _ = fs::remove_file(&paths.lock);
            }
            exists
        });
        if exists.await? {
            Ok(lock)
        } else {
            Err(SandboxError::NotFound)
        }
    }

    /// Ends all processes and records the phase in which this leaves the sandbox.
    pub(crate) async fn end_processes(
        self: &Arc<Self>,
        id: &SandboxId,
        mode: StopMode,
        phase: LifecyclePhase,
    ) -> Result<(), SandboxError> {
        let marker = self.marker(id);
        let former = self.load(id).await?;
        let exit = self.request_exit(id);
        let (state, mark) = (former.clone(), marker.clone());
        let main = blocking(move || state?.find_process(&mark)).await?;
        if let (Some(state), Some(_)) = (&former, main) {
            // If the service crashes here, the process is not taken for a running sandbox again.
            let stopping = ProcessState {
                phase: LifecyclePhase::Stopping,
                process: main,
                ..state.clone()
            };
            self.store(id, &stopping).await?;
        }
        let mut known = BTreeSet::new();
        if let (Some(main), StopMode::Graceful) = (main, mode) {
            let mark = marker.clone();
            known = blocking(move || marker::snapshot(&mark, main)).await?;
            let terminated = self.terminate(id, main).await;
            terminated.map_err(SandboxError::other)?;
        }
        marker::kill_all(&marker, main, known, self.config.kill_timeout)
            .await
            .map_err(errors::removal_failed)?;
        if let Some(mut exit) = exit {
            let reaped = timeout(REAP_TIMEOUT, exit.wait_for(|has_exited| *has_exited)).await;
            if reaped.is_err() {
                tracing::warn!(sandbox.id = %id, "the main process of a stopped sandbox was not reaped within 5 s");
            }
        }
        self.remove_cgroup(id).await?;
        let port = former.map_or(0, |state| state.port);
        let stopped = ProcessState {
            phase,
            port,
            process: None,
            boot: proc::boot_id().to_owned(),
        };
        if self.paths(id).root.exists() {
            self.store(id, &stopped).await?;
        }
        Ok(())
    }

    /// Removes the cgroup of a sandbox whose processes have ended.
    pub(crate) async fn remove_cgroup(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let Some(cgroup) = self.cgroup(id) else {
            return Ok(());
        };
        let removed = blocking(move || cgroup.remove()).await?;
        if let Err(error) = removed {
            tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot remove the cgroup of a sandbox: its next start uses it again");
        }
        Ok(())
    }

    /// Sends `SIGTERM` to the agent server alone, and waits for its last events.
    async fn terminate(&self, id: &SandboxId, main: ProcessKey) -> io::Result<()> {
        let Some(handle) = PidHandle::open(main)? else {
            return Ok(());
        };
        // Bubblewrap, the main process of a confined sandbox, would not pass a signal on: init signals the agent server.
        let control = self.paths(id).control;
        crash_point::before("process: SIGTERM");
        let requested = control::terminate(&control).await;
        match requested {
            // It is the main process that may be frozen.
            Ok(true) => drop(handle.signal(Signal::CONT)?),
            Ok(false) => {
                handle.signal(Signal::TERM)?;
                // A frozen process would not handle the signal.
                handle.signal(Signal::CONT)?;
            }
            // Init does not exist yet or any more: the caller kills what is left.
            Err(error) => {
                tracing::debug!(sandbox.id = %id, error = %chain(&error), "cannot end a confined sandbox gracefully");
                return Ok(());
            }
        }
        crash_point::after("process: SIGTERM");
        let exit = handle.watch()?;
        if timeout(self.config.grace, exit.exited()).await.is_err() {
            let grace = self.config.grace.as_secs();
            tracing::warn!(sandbox.id = %id, grace, "sandbox {id} does not stop in time; killing it");
        }
        Ok(())
    }
}
