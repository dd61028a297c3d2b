//! Starts sandboxes: finds a running process, cleans up, spawns.
//!
//! ```text
//!   state written      process              after a crash of the service here
//!   (none, stopped)    -                    nothing happened
//!   starting           may or may not be    found by marker and port, else cleaned up and spawned
//!   running            pid + start time     adopted
//! ```

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use domain::crash_point;
use domain::id::SandboxId;
use domain::sandbox::{SandboxEndpoints, SandboxError, SandboxLaunch};
use sandbox_provider::{AGENT_SERVER_PORT, SESSION_KEY_VARIABLE, authority_of};
use secrecy::ExposeSecret;
use tokio::process::Child;
use tokio::time::timeout;

use crate::backend::ProcessInner;
use crate::confinement::plan::NetworkPolicy;
use crate::confinement::{self, ConfinedLaunch, ids};
use crate::environment;
use crate::errors::{self, blocking};
use crate::files::layout::SandboxPaths;
use crate::files::lock::SandboxFileLock;
use crate::files::state::{LifecyclePhase, ProcessState};
use crate::files::{certificates, if_exists, log_file};
use crate::lifecycle::stop::StopMode;
use crate::lifecycle::tracked::{BootInProgress, MainProcess, ProcessStartPermit};
use crate::processes::marker;
use crate::processes::proc::{self, ProcessKey};
use crate::processes::programs::find_program;
use crate::processes::spawn::{self, PortReservation};

impl ProcessInner {
    /// Waits in the queue of starts. A running sandbox does not queue.
    pub(crate) async fn acquire_start_permit(
        self: &Arc<Self>,
        id: &SandboxId,
    ) -> Result<ProcessStartPermit, SandboxError> {
        let (state_file, marker) = (self.paths(id).state(), self.marker(id));
        let main = blocking(move || {
            ProcessState::load(&state_file).and_then(|state| state.running_process(&marker))
        });
        if main.await?.is_some() {
            return Ok(None);
        }
        let permit = timeout(
            self.config.start_queue_timeout,
            Arc::clone(&self.starts).acquire_owned(),
        );
        match permit.await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            // The semaphore is never closed, so this is the time-out.
            _ => Err(SandboxError::TimedOut {
                what: "waiting for a free start slot (sandbox.parallel_starts)",
            }),
        }
    }

    pub(crate) async fn start(
        self: &Arc<Self>,
        launch: SandboxLaunch,
        command: Vec<OsString>,
        permit: ProcessStartPermit,
        _lock: SandboxFileLock,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let id = launch.id.clone();
        let former = self.prepare_paths(&id).await?;
        if let Some(endpoints) = self.adopt(&launch, former.as_ref()).await? {
            return Ok(endpoints);
        }
        // Processes of an earlier run (a tmux server, a shell) would hold sockets and files of the new one.
        let marker = self.marker(&id);
        marker::kill_all(&marker, None, BTreeSet::new(), self.config.kill_timeout)
            .await
            .map_err(errors::removal_failed)?;

        let reservation = self.reserve(&id, former.as_ref()).await?;
        let port = reservation.port;
        let boot_id = proc::boot_id().to_owned();
        let mut state = ProcessState {
            phase: LifecyclePhase::Starting,
            port,
            process: None,
            boot: boot_id,
        };
        self.store(&id, &state).await?;
        let (child, key) = match self.spawn(&launch, command, port).await? {
            Ok(spawned) => spawned,
            Err(error) => {
                self.server.forget_installation();
                state.phase = LifecyclePhase::Exited {
                    detail: "cannot run the agent server's command".into(),
                };
                self.store(&id, &state).await?;
                return Err(errors::spawn(error));
            }
        };
        let keys = vec![launch.session_key, launch.secret_key];
        let booting = BootInProgress {
            port,
            permit,
            reservation,
        };
        self.track(
            id.clone(),
            key,
            MainProcess::Child(Box::new(child)),
            keys,
            Some(booting),
        );
        state.phase = LifecyclePhase::Running;
        state.process = Some(key);
        // After a failure here the next start finds the running process by its marker.
        self.store(&id, &state).await?;
        tracing::info!(sandbox.id = %id, pid = key.pid, port, "sandbox {id} started");
        self.endpoints(&id, port)
    }

    /// Spawns the agent server through the launcher, which gives it its own session.
    async fn spawn(
        self: &Arc<Self>,
        launch: &SandboxLaunch,
        command: Vec<OsString>,
        port: u16,
    ) -> Result<io::Result<(Child, ProcessKey)>, SandboxError> {
        let (paths, marker) = (self.paths(&launch.id), self.marker(&launch.id));
        let program = command.first().cloned().unwrap_or_default();
        let mut variables = environment::variables(&self.config, &paths, &marker, launch, &program);
        variables.insert(AGENT_SERVER_PORT.to_owned(), port.to_string().into());
        let certificates = self.write_certificates(&launch.id).await?;
        let search_path = environment::search_path(&program, &self.config.path);
        let fork_server = self.fork_server_socket(&command).await?;
        let mut command = command;
        command.extend(["--host", "127.0.0.1", "--port"].map(OsString::from));
        command.push(port.to_string().into());
        let (inner, id) = (Arc::clone(self), launch.id.clone());
        // Spawning blocks until the new program is loaded, so it runs on a blocking thread. The handle makes this
        // runtime reap the child.
        let runtime = self.tasks.runtime.clone();
        blocking(move || {
            let _runtime = runtime.enter();
            find_program(&program, &search_path)?;
            environment::add_base_python(&mut variables, &program);
            let log_file = log_file::open(&paths.log_file())?;
            let (arguments, stdin) =
                inner.launcher_command(&id, command, port, fork_server, certificates)?;
            crash_point::around("process: spawning", || {
                spawn::spawn(&arguments, &variables, &paths.root, stdin, log_file)
            })
        })
        .await
    }

    /// The files of certificates that the sandbox's programs trust, if they use the service's proxy.
    async fn write_certificates(
        self: &Arc<Self>,
        id: &SandboxId,
    ) -> Result<Vec<PathBuf>, SandboxError> {
        let confinement = self.config.confinement.as_ref();
        let Some(slot) = confinement.and_then(|it| it.egress.as_ref()) else {
            return Ok(Vec::new());
        };
        let authority = authority_of(Some(slot), id)?;
        let (inner, file) = (Arc::clone(self), self.paths(id).certificates());
        let written = blocking(move || certificates::write(&file, &inner.config, &authority));
        written.await?.map_err(SandboxError::other)
    }

    /// The command that launches the agent server, and its standard input. Blocks.
    fn launcher_command(
        &self,
        id: &SandboxId,
        command: Vec<OsString>,
        port: u16,
        fork_server: Option<PathBuf>,
        certificates: Vec<PathBuf>,
    ) -> io::Result<(Vec<OsString>, Stdio)> {
        let paths = self.paths(id);
        let Some(confinement) = &self.config.confinement else {
            // The socket of an earlier, confined run would show this one as confined.
            if_exists(fs::remove_file(&paths.control))?;
            let mut arguments = self.config.launcher.prefix();
            arguments.extend(command);
            return Ok((arguments, Stdio::null()));
        };
        let cgroup = self.cgroup(id);
        if let Some(cgroup) = &cgroup {
            cgroup.create(&confinement.limits)?;
        }
        let plan = confinement.plan(ConfinedLaunch {
            account_id: self.give_files(id, &paths)?,
            paths: &paths,
            port,
            cgroup: cgroup.as_ref(),
            command,
            fork_server,
            certificates,
        })?;
        let mut arguments = vec![self.config.launcher.binary().into_os_string()];
        arguments.extend(confinement::launcher_arguments(port));
        Ok((arguments, plan.into()))
    }

    /// As root, gives the sandbox's files to an id of their own, and returns it. Blocks.
    fn give_files(&self, id: &SandboxId, paths: &SandboxPaths) -> io::Result<Option<u32>> {
        if !ids::are_own() {
            return Ok(None);
        }
        let owner = if let Some(owner) = ids::of(&paths.workspace()) {
            owner
        } else {
            let others = self.layout.ids()?.into_iter();
            let taken = others.filter_map(|other| ids::of(&self.paths(&other).workspace()));
            ids::choose(self.marker(id).value(), &taken.collect::<Vec<_>>())
        };
        ids::give(&paths.tmp(), owner)?;
        paths
            .writable()
            .iter()
            .try_for_each(|dir| ids::give(dir, owner))?;
        Ok(Some(owner))
    }

    async fn prepare_paths(&self, id: &SandboxId) -> Result<Option<ProcessState>, SandboxError> {
        let (directories, paths) = (self.layout.clone(), self.paths(id));
        let prepared = blocking(move || {
            directories.create()?;
            crash_point::around("process: making its directories", || paths.create())?;
            io::Result::Ok(ProcessState::load(&paths.state()))
        });
        prepared.await?.map_err(SandboxError::other)
    }

    /// Adopts the main process if it runs, was not being stopped and has the launch's session key. A process with
    /// another key is stopped: it would refuse the service, and the replaced key would still open it.
    async fn adopt(
        self: &Arc<Self>,
        launch: &SandboxLaunch,
        former: Option<&ProcessState>,
    ) -> Result<Option<SandboxEndpoints>, SandboxError> {
        let id = &launch.id;
        let Some(state) = former.cloned() else {
            return Ok(None);
        };
        if !matches!(
            state.phase,
            LifecyclePhase::Starting | LifecyclePhase::Running
        ) {
            return Ok(None);
        }
        let (marker, recorded) = (self.marker(id), state.clone());
        let session_key = launch.session_key.clone();
        let (control, is_confining) = (self.paths(id).control, self.config.confinement.is_some());
        let network = self.config.network();
        let main = blocking(move || {
            let key = recorded.find_process(&marker)?;
            let initial_key = proc::initial_variable(key.pid, SESSION_KEY_VARIABLE);
            let recorded = proc::initial_variable(key.pid, NetworkPolicy::VARIABLE);
            let recorded = NetworkPolicy::recorded(recorded.as_deref());
            let is_as_configured = control.exists() == is_confining && recorded == network;
            Some((
                key,
                is_as_configured && initial_key? == session_key.expose_secret(),
            ))
        });
        let Some((key, is_current)) = main.await? else {
            return Ok(None);
        };
        if !is_current {
            tracing::info!(sandbox.id = %id, "sandbox {id} runs with another session key, isolation or network; restarting it");
            self.end_processes(id, StopMode::Graceful, LifecyclePhase::Stopped)
                .await?;
            return Ok(None);
        }
        if state.process != Some(key) {
            let state = ProcessState {
                phase: LifecyclePhase::Running,
                process: Some(key),
                ..state.clone()
            };
            self.store(id, &state).await?;
        }
        self.track_adopted(id.clone(), key).await?;
        self.endpoints(id, state.port).map(Some)
    }

    /// Reserves the previous port, unless it was in use then.
    async fn reserve(
        &self,
        id: &SandboxId,
        former: Option<&ProcessState>,
    ) -> Result<PortReservation, SandboxError> {
        let port = former.map(|state| state.port);
        let log_file = self.paths(id).log_file();
        let is_in_use = blocking(move || log_file::reports_port_in_use(&log_file)).await?;
        PortReservation::new(port.filter(|_| !is_in_use)).map_err(|error| {
            SandboxError::StartFailed {
                detail: format!("this machine has no free port ({})", error.kind()),
                source: Some(Box::new(error)),
            }
        })
    }
}
