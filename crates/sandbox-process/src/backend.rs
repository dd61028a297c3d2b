//! [`ProcessSandboxes`] implements the port. Each operation is a task that runs to its end even if its caller gives up.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    BackendCapabilities, BackendFact, BackendState, LogStream, LogTail, PrepareProgress,
    SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch, SandboxLifecycle, SandboxLocks,
    SandboxReader,
};
use futures::stream::BoxStream;
use sandbox_provider::BackendTasks;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::config::{AgentServerSource, ProcessConfig};
use crate::confinement::plan::WORKSPACE;
use crate::confinement::walls::limits::MachineLimits;
use crate::confinement::walls::{self, Cgroup, CgroupParent};
use crate::environment;
use crate::errors;
use crate::files::confine;
use crate::files::layout::{DataLayout, SandboxPaths};
use crate::files::lock::{self, SandboxFileLock};
use crate::fork_server::ForkServer;
use crate::lifecycle::tracked::TrackedProcess;
use crate::processes::marker::Marker;
use crate::processes::programs::find_program;
use crate::recipe;
use crate::server::AgentServerProvider;

pub(crate) const NAME: &str = "process";

/// For how long a problem is taken as given, so that checks and starts do not probe all the time.
const PROBE_TTL: Duration = Duration::from_secs(5);

/// Each proof occupies a thread for some hundred microseconds.
const MAX_PARALLEL_PROOFS: usize = 4;

/// Runs sandboxes as processes of this machine.
#[derive(Debug)]
pub struct ProcessSandboxes {
    inner: Arc<ProcessInner>,
}

#[derive(Debug)]
pub(crate) struct ProcessInner {
    pub(crate) config: ProcessConfig,
    pub(crate) layout: DataLayout,
    pub(crate) server: AgentServerProvider,
    /// Where the service makes cgroups of confined sandboxes. `None`: nowhere, so only each process has limits.
    pub(crate) cgroups: Option<CgroupParent>,
    /// Started with the first installation that it can use.
    pub(crate) fork_server: OnceLock<ForkServer>,
    /// A child is reaped by the runtime that spawned it.
    pub(crate) tasks: BackendTasks,
    pub(crate) locks: SandboxLocks,
    pub(crate) starts: Arc<Semaphore>,
    pub(crate) proofs: Semaphore,
    /// The last probe of the walls, and what it found missing. A result without a problem stays.
    pub(crate) confinement_probe: tokio::sync::Mutex<Option<(Instant, Option<String>)>>,
    pub(crate) tracked: Mutex<std::collections::HashMap<SandboxId, TrackedProcess>>,
}

impl ProcessSandboxes {
    /// Creates the backend's directories. Call it in the runtime that shall watch the processes; the runtime must outlive
    /// the backend. Processes of an earlier service are adopted when they are listed, inspected or started.
    pub async fn new(config: ProcessConfig) -> Result<Self, SandboxError> {
        let instance = config.instance.clone();
        let layout = DataLayout::new(&config.data_dir, &config.runtime_dir, instance)
            .map_err(SandboxError::unavailable)?;
        let directories = layout.clone();
        errors::blocking(move || directories.create())
            .await?
            .map_err(SandboxError::other)?;
        let cgroups = if config.confinement.is_some() {
            let instance = config.instance.clone();
            errors::blocking(move || CgroupParent::open(&instance))
                .await?
                .ok()
        } else {
            None
        };
        let inner = ProcessInner {
            cgroups,
            fork_server: OnceLock::new(),
            layout,
            server: AgentServerProvider::new(config.agent_server.clone()),
            tasks: BackendTasks::new()?,
            locks: SandboxLocks::default(),
            starts: Arc::new(Semaphore::new(config.parallel_starts.max(1))),
            proofs: Semaphore::new(MAX_PARALLEL_PROOFS),
            confinement_probe: tokio::sync::Mutex::default(),
            tracked: Mutex::default(),
            config,
        };
        let inner = Arc::new(inner);
        inner.tasks.spawn(Arc::clone(&inner).truncate_large_logs());
        if let Some(limit) = inner.config.disk {
            inner
                .tasks
                .spawn(Arc::clone(&inner).watch_disk_limit(limit));
        }
        Ok(Self { inner })
    }

    pub(crate) fn inner(&self) -> &Arc<ProcessInner> {
        &self.inner
    }
}

/// Stops the monitors. The sandboxes keep running, and the next service adopts them.
impl Drop for ProcessSandboxes {
    fn drop(&mut self) {
        self.inner.tasks.closed.cancel();
    }
}

impl ProcessInner {
    pub(crate) fn paths(&self, id: &SandboxId) -> SandboxPaths {
        self.layout.paths(id)
    }

    pub(crate) fn cgroup(&self, id: &SandboxId) -> Option<Cgroup> {
        self.cgroups.as_ref().map(|parent| parent.cgroup(id))
    }

    /// Says why sandboxes cannot be confined here, and what to do.
    pub(crate) async fn check_confinement(&self) -> Result<(), SandboxError> {
        let Some(confinement) = &self.config.confinement else {
            return Ok(());
        };
        let limits = confinement.limits.check(&MachineLimits::read());
        limits.map_err(|cause| {
            SandboxError::unavailable(format!("{cause}: the operator has to lower the setting"))
        })?;
        let mut probe = self.confinement_probe.lock().await;
        // The operator may have installed or allowed what was missing.
        probe.take_if(|(at, problem)| problem.is_some() && at.elapsed() > PROBE_TTL);
        if let Some((_, problem)) = &*probe {
            return problem.as_ref().map_or(Ok(()), |problem| {
                Err(SandboxError::unavailable(problem.clone()))
            });
        }
        let binary = self.config.launcher.binary();
        let (search_path, network) = (&confinement.search_path, confinement.network);
        let probed = walls::probe(&self.config.instance, search_path, network, &binary);
        let mut missing = probed.await.into_iter();
        let missing = missing.find(|wall| wall.is_required && !wall.held);
        let problem = missing.map(|wall| {
            format!(
                "sandboxes cannot be confined on this machine ({}: {}): {}. Otherwise run sandboxes in containers \
                 (WORKSPACE_SANDBOX__BACKEND=docker), or without isolation (WORKSPACE_PROCESS__ISOLATION=none)",
                wall.name, wall.detail, wall.remedy
            )
        });
        *probe = Some((Instant::now(), problem.clone()));
        problem.map_or(Ok(()), |problem| Err(SandboxError::unavailable(problem)))
    }

    pub(crate) fn marker(&self, id: &SandboxId) -> Marker {
        Marker::new(&self.config.instance, id)
    }

    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<SandboxFileLock, SandboxError> {
        let (file, limit) = (self.paths(id).lock, self.config.queue_timeout);
        lock::lock(&self.locks, id, &file, limit).await
    }
}

#[async_trait]
impl SandboxBackend for ProcessSandboxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            // Paths in requests are those of the sandbox's directories, with and without walls.
            isolated: false,
            replaces_session_key: true,
        }
    }

    async fn prepare(
        &self,
        _spec: &SpecId,
        progress: &PrepareProgress,
    ) -> Result<(), SandboxError> {
        progress.report("installing the agent server; this takes some minutes the first time");
        // There is one template. A sandbox of an older one starts with the current agent server.
        let command = self.inner.server.command(&self.inner.tasks.runtime);
        self.inner.start_fork_server(&command.await?);
        Ok(())
    }

    async fn recipe(&self, _spec: &SpecId) -> Result<String, SandboxError> {
        // There is one template, as in `prepare`.
        Ok(recipe::fingerprint(&self.inner.config))
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let directories = self.inner.layout.clone();
        let created = errors::blocking(move || directories.create()).await?;
        created.map_err(|error| SandboxError::Unavailable {
            detail: format!("cannot use the sandbox directories ({}): the operator has to check WORKSPACE_DATA_DIR", error.kind()),
            source: Some(Box::new(error)),
        })?;
        self.inner.check_confinement().await?;
        if let AgentServerSource::Command(command) = &self.inner.config.agent_server {
            let program = command.first().cloned().unwrap_or_default();
            let path = environment::search_path(&program, &self.inner.config.path);
            let runnable = errors::blocking(move || find_program(&program, &path)).await?;
            return runnable.map(drop).map_err(|error| SandboxError::Unavailable {
                detail: "the program of WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND does not exist or is not executable".to_owned(),
                source: Some(Box::new(error)),
            });
        }
        self.inner.server.check().await
    }
}

#[async_trait]
impl SandboxLifecycle for ProcessSandboxes {
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        self.inner.check_confinement().await?;
        let command = self.inner.server.command(&self.inner.tasks.runtime).await?;
        // Only the wait for a permit ends with the caller, not the start.
        let permit = self.inner.acquire_start_permit(&launch.id).await?;
        // The wait for the lock also ends with the caller: an abandoned operation must not start after the caller's next
        // one.
        let guard = self.inner.lock(&launch.id).await?;
        let (inner, launch) = (Arc::clone(&self.inner), launch.clone());
        let work = async move { inner.start(launch, command, permit, guard).await };
        self.inner.tasks.detached(work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        let work = Arc::clone(&self.inner).observe(id.clone());
        self.inner.tasks.detached(work).await
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        let work = Arc::clone(&self.inner).observe_all();
        self.inner.tasks.detached(work).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { inner.stop(&id).await };
        self.inner.tasks.detached(work).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { inner.remove(&id).await };
        self.inner.tasks.detached(work).await
    }

    fn watch(&self) -> BoxStream<'static, BackendFact> {
        self.inner.tasks.watch()
    }
}

#[async_trait]
impl SandboxReader for ProcessSandboxes {
    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        let work = Arc::clone(&self.inner).logs(id.clone(), keys.to_vec(), tail);
        self.inner.tasks.detached(work).await
    }

    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let (paths, path) = (self.inner.paths(id), path.to_owned());
        let confinement = self.inner.config.confinement.as_ref();
        let is_confined = confinement.is_some();
        let has_workspace = confinement.is_some_and(|it| !it.shows_workspace());
        let resolved = errors::blocking(move || {
            let own_tmp = || confine::resolve_tmp(&paths, &path).filter(|_| is_confined);
            let workspace = || {
                let shown = confine::resolve_shown(&paths.workspace(), WORKSPACE, &path);
                shown.filter(|_| has_workspace)
            };
            let resolved = confine::resolve(&paths, &path);
            resolved.or_else(own_tmp).or_else(workspace)
        });
        let resolved = resolved.await?;
        let resolved = resolved.and_then(|path| path.into_os_string().into_string().ok());
        resolved.ok_or(SandboxError::NotFound)
    }
}
