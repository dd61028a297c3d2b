//! Monitors the main process of every running sandbox: its exit, its log and its boot.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use domain::error::chain;
use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxError};
use sandbox_provider::{SECRET_KEY_VARIABLE, SESSION_KEY_VARIABLE};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::backend::ProcessInner;
use crate::confinement::{callbacks, egress};
use crate::errors::blocking;
use crate::files::log_file;
use crate::files::state::{LifecyclePhase, ProcessState};
use crate::lifecycle::observe::describe;
use crate::lifecycle::tracked::{BootInProgress, MainProcess, TrackedProcess};
use crate::processes::marker;
use crate::processes::pidfd::PidHandle;
use crate::processes::proc::{self, ProcessKey};

const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Interval of checks of a booting agent server.
const LISTENER_CHECK_INTERVAL: Duration = Duration::from_millis(25);

struct Monitor {
    id: SandboxId,
    key: ProcessKey,
    keys: Vec<SecretString>,
    is_exit_requested: Arc<AtomicBool>,
    ended: watch::Sender<bool>,
}

impl ProcessInner {
    /// Monitors a process, unless it is monitored already.
    pub(crate) fn track(
        self: &Arc<Self>,
        id: SandboxId,
        key: ProcessKey,
        main: MainProcess,
        keys: Vec<SecretString>,
        booting: Option<BootInProgress>,
    ) {
        let is_exit_requested = Arc::new(AtomicBool::new(false));
        let (ended, receiver) = watch::channel(false);
        {
            let mut tracked = self.tracked();
            // A concurrent observation may adopt a child before its start gets here; the child's own monitor replaces that
            // one.
            let is_tracked = tracked.get(&id).is_some_and(|tracked| tracked.key == key);
            if is_tracked && matches!(main, MainProcess::Adopted(_)) {
                return;
            }
            let entry = TrackedProcess {
                key,
                is_exit_requested: Arc::clone(&is_exit_requested),
                ended: receiver,
            };
            tracked.insert(id.clone(), entry);
        }
        let monitor = Monitor {
            id,
            key,
            keys,
            is_exit_requested,
            ended,
        };
        self.tasks
            .spawn(monitor.run(Arc::clone(self), main, booting));
    }

    /// Monitors a process of an earlier service, or of an operation whose end was not seen.
    pub(crate) async fn track_adopted(
        self: &Arc<Self>,
        id: SandboxId,
        key: ProcessKey,
    ) -> Result<(), SandboxError> {
        if self.tracked_key(&id) == Some(key) {
            return Ok(());
        }
        let opened = blocking(move || {
            let handle = PidHandle::open(key)?;
            // The keys, to mask them in quotations of the log.
            let names = [SESSION_KEY_VARIABLE, SECRET_KEY_VARIABLE];
            let values = names
                .iter()
                .filter_map(|name| proc::initial_variable(key.pid, name));
            io::Result::Ok((handle, values.map(SecretString::from).collect::<Vec<_>>()))
        });
        let opened = opened
            .await?
            .and_then(|(handle, keys)| Ok((handle.map(PidHandle::watch).transpose()?, keys)));
        // `None`: it exited just now; the next observation notices that.
        if let (Some(watch), keys) = opened.map_err(SandboxError::other)? {
            tracing::info!(sandbox.id = %id, pid = key.pid, "sandbox {id} adopted");
            self.track(id, key, MainProcess::Adopted(watch), keys, None);
        }
        Ok(())
    }

    /// The sandboxes whose main processes run.
    pub(crate) fn running_sandboxes(&self) -> Vec<SandboxId> {
        self.tracked().keys().cloned().collect()
    }

    fn tracked(&self) -> MutexGuard<'_, HashMap<SandboxId, TrackedProcess>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tracked_key(&self, id: &SandboxId) -> Option<ProcessKey> {
        self.tracked().get(id).map(|tracked| tracked.key)
    }

    /// Marks the exit of the monitored process as requested. The receiver becomes `true` at the exit.
    pub(crate) fn request_exit(&self, id: &SandboxId) -> Option<watch::Receiver<bool>> {
        let tracked = self.tracked();
        let tracked = tracked.get(id)?;
        tracked.is_exit_requested.store(true, Ordering::SeqCst);
        Some(tracked.ended.clone())
    }

    /// A receiver that becomes `true` at the exit of the monitored process. `None` if no process runs.
    pub(crate) fn exit_receiver(&self, id: &SandboxId) -> Option<watch::Receiver<bool>> {
        self.tracked().get(id).map(|tracked| tracked.ended.clone())
    }

    /// Truncates large logs regularly. Never returns. One task checks all logs, because a task per log would wake a thread
    /// for each of them.
    pub(crate) async fn truncate_large_logs(self: Arc<Self>) {
        let mut ticks = interval(LOG_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let inner = Arc::clone(&self);
            // Fails only during shutdown.
            let _ = blocking(move || inner.truncate_logs()).await;
        }
    }

    /// Blocks.
    fn truncate_logs(&self) {
        for id in self.running_sandboxes() {
            if let Err(error) =
                log_file::truncate(&self.paths(&id).log_file(), self.config.log_bytes)
            {
                tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot truncate a sandbox's log; it may outgrow its limit until the next attempt");
            }
        }
    }

    fn untrack(&self, id: &SandboxId, key: ProcessKey) {
        let mut tracked = self.tracked();
        if tracked.get(id).is_some_and(|tracked| tracked.key == key) {
            tracked.remove(id);
        }
    }
}

impl Monitor {
    async fn run(
        self,
        inner: Arc<ProcessInner>,
        mut main: MainProcess,
        booting: Option<BootInProgress>,
    ) {
        let boot = async {
            if let Some(booting) = booting {
                hold_permit_until_boot(&inner, &self.id, booting).await;
            }
            std::future::pending::<Infallible>().await
        };
        let control = inner.paths(&self.id).control;
        let callbacks = forward_callbacks(&inner, &control);
        let egress = serve_egress(&inner, &self.id, &control);
        let exit = tokio::select! {
            exit = wait_for_exit(&mut main) => exit,
            never = boot => match never {},
            never = callbacks => match never {},
            never = egress => match never {},
        };
        drop(main);
        self.ended.send_replace(true);
        let exit = inner.describe_end(&self.id, exit).await;
        if let Err(error) = self.report(&inner, exit).await {
            tracing::warn!(sandbox.id = %self.id, error = %chain(&error), "cannot record the exit of a sandbox");
        }
        inner.untrack(&self.id, self.key);
    }

    /// Records and reports an unrequested exit, and ends the remaining processes.
    async fn report(&self, inner: &Arc<ProcessInner>, exit: String) -> Result<(), SandboxError> {
        if self.is_exit_requested.load(Ordering::SeqCst) {
            return Ok(());
        }
        let lock = inner.lock_existing(&self.id).await;
        // An operation may have requested the exit while this task waited.
        if self.is_exit_requested.load(Ordering::SeqCst) {
            return Ok(());
        }
        let report = |state| {
            let id = self.id.clone();
            inner.tasks.report(BackendFact { id, state });
        };
        let _guard = match lock {
            // Another service removed it, or an earlier operation of this one.
            Err(SandboxError::NotFound) => {
                report(BackendState::Absent);
                return Ok(());
            }
            other => other?,
        };
        let state = inner.load(&self.id).await?;
        // Under the lock, `starting` was left by an interrupted start (every other one has written `running` by now): the
        // process that was found by its marker and monitored since is the one of that start.
        let is_current = |state: &ProcessState| match state.phase {
            LifecyclePhase::Running => state.process == Some(self.key),
            LifecyclePhase::Starting => true,
            _ => false,
        };
        if state.as_ref().is_some_and(|state| !is_current(state)) {
            // Started again or stopped in the meantime: the current processes are not part of this exit.
            return Ok(());
        }
        let marker = inner.marker(&self.id);
        let limit = inner.config.kill_timeout;
        let killed = marker::kill_all(&marker, Some(self.key), BTreeSet::new(), limit).await;
        if let Err(error) = killed {
            tracing::warn!(sandbox.id = %self.id, error = %chain(&error), "cannot kill all processes of a crashed sandbox");
        }
        inner.remove_cgroup(&self.id).await?;
        let Some(state) = state else {
            report(BackendState::Absent);
            return Ok(());
        };
        tracing::warn!(sandbox.id = %self.id, %exit, "sandbox {} exited by itself", self.id);
        let (paths, keys) = (inner.paths(&self.id), self.keys.clone());
        let detail = blocking(move || describe(&exit, &paths, &keys)).await?;
        let exited = ProcessState {
            phase: LifecyclePhase::Exited {
                detail: detail.clone(),
            },
            process: None,
            ..state
        };
        let stored = inner.store(&self.id, &exited).await;
        report(BackendState::Exited { detail });
        stored
    }
}

async fn listens(inner: &Arc<ProcessInner>, id: &SandboxId, address: SocketAddr) -> bool {
    match inner.connect_confined(id, address.port()).await {
        Ok(Some(_)) => true,
        Ok(None) if inner.config.confinement.is_none() => inner.prove(id, address).await.is_ok(),
        _ => false,
    }
}

/// Forwards the callbacks of a confined sandbox while it runs.
async fn forward_callbacks(inner: &ProcessInner, control: &Path) -> Infallible {
    match &inner.config.confinement {
        Some(confinement) => callbacks::forward(control, &confinement.callbacks).await,
        None => std::future::pending().await,
    }
}

/// Serves the connections of a confined sandbox to other machines while it runs.
async fn serve_egress(inner: &ProcessInner, id: &SandboxId, control: &Path) -> Infallible {
    let confinement = inner.config.confinement.as_ref();
    match confinement.and_then(|it| it.egress.as_ref()) {
        Some(gateway) => egress::serve(control, id, gateway).await,
        None => std::future::pending().await,
    }
}

impl ProcessInner {
    /// How a main process exited, and whether the kernel killed something for lack of memory.
    async fn describe_end(&self, id: &SandboxId, exit: Option<ExitStatus>) -> String {
        let (control, cgroup) = (self.paths(id).control, self.cgroup(id));
        let read = blocking(move || {
            let kills = cgroup.map_or(0, |cgroup| cgroup.memory_kills());
            (control.exists(), kills)
        });
        let (is_confined, kills) = read.await.unwrap_or_default();
        // Bubblewrap and init report the signal that ended the agent server like a shell.
        let exit = match exit.and_then(|exit| exit.code()) {
            Some(code) if is_confined && code > 128 => Some(ExitStatus::from_raw(code - 128)),
            _ => exit,
        };
        let text = describe_status(exit);
        if kills == 0 {
            return text;
        }
        format!(
            "{text}; the kernel killed {kills} of its processes, because the sandbox used all memory of process.memory"
        )
    }
}

/// How a process exited. The kernel tells that only its parent.
fn describe_status(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("ended with exit code {code}"),
        Some((None, Some(9))) => "was killed (signal 9; perhaps memory ran out)".to_owned(),
        Some((None, Some(signal))) => format!("was ended by signal {signal}"),
        Some((None, None)) | None => "ended".to_owned(),
    }
}

async fn wait_for_exit(main: &mut MainProcess) -> Option<ExitStatus> {
    match main {
        MainProcess::Child(child) => child.wait().await.ok(),
        MainProcess::Adopted(watch) => {
            if let Err(error) = watch.exited().await {
                tracing::warn!(error = %chain(&error), "cannot monitor a sandbox: its exit is noticed at the next periodic list");
            }
            None
        }
    }
}

/// Holds the start permit and the port until the agent server answers.
async fn hold_permit_until_boot(
    inner: &Arc<ProcessInner>,
    id: &SandboxId,
    booting: BootInProgress,
) {
    let BootInProgress {
        port,
        permit,
        reservation,
    } = booting;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // No event reports a new listener. The agent server accepts no connection before it is ready.
    let listens = async {
        while !listens(inner, id, address).await {
            sleep(LISTENER_CHECK_INTERVAL).await;
        }
    };
    let _ = timeout(inner.config.boot_permit_timeout, listens).await;
    drop((permit, reservation));
}
