//! [`ProcessSandboxes`]: the port, each operation a task that its caller cannot leave half done.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    BackendFact, BackendState, BackendCapabilities, SandboxEndpoints, LogTail, LogStream, PrepareProgress, SandboxBackend,
    SandboxError, SandboxLaunch,
};
use futures::stream::{self, BoxStream, StreamExt};
use secrecy::SecretString;
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::config::{AgentServerSource, ProcessConfig};
use crate::confine;
use crate::environment;
use crate::errors;
use crate::layout::{DataLayout, SandboxPaths};
use crate::lock::{SandboxLockGuard, SandboxLocks};
use crate::marker::Marker;
use crate::monitor::TrackedProcess;
use crate::recipe;
use crate::server::AgentServerProvider;
use crate::start;

/// Facts that a slow watcher may miss before it lags.
const MAX_BUFFERED_FACTS: usize = 256;

/// Each takes some hundred microseconds of a thread.
const MAX_PARALLEL_PROOFS: usize = 4;

/// Sandboxes that are processes of this machine.
#[derive(Debug)]
pub struct ProcessSandboxes {
    inner: Arc<ProcessInner>,
}

/// What operations and monitors share.
#[derive(Debug)]
pub(crate) struct ProcessInner {
    pub(crate) config: ProcessConfig,
    pub(crate) layout: DataLayout,
    pub(crate) server: AgentServerProvider,
    /// Where tasks run: they outlive requests, and children are reaped by the runtime that spawned them.
    pub(crate) runtime: Handle,
    pub(crate) locks: SandboxLocks,
    pub(crate) starts: Arc<Semaphore>,
    /// Proofs of listeners at the same time.
    pub(crate) proofs: Semaphore,
    pub(crate) tracked: Mutex<std::collections::HashMap<SandboxId, TrackedProcess>>,
    pub(crate) facts: broadcast::Sender<BackendFact>,
    /// Ends the monitors, not the sandboxes.
    pub(crate) closed: CancellationToken,
}

impl ProcessSandboxes {
    /// Makes the backend's directories. Must be called in the runtime that is to watch the processes; that runtime has to
    /// live as long as the backend. Processes of an earlier service are adopted when they are first listed, inspected or
    /// started.
    pub async fn new(config: ProcessConfig) -> Result<Self, SandboxError> {
        let unusable = |detail| SandboxError::Unavailable {
            detail,
            source: None,
        };
        let layout = DataLayout::new(
            &config.data_dir,
            &config.runtime_dir,
            config.instance.clone(),
        )
        .map_err(unusable)?;
        let roots = layout.clone();
        errors::blocking(move || roots.create())
            .await?
            .map_err(errors::other)?;
        let inner = ProcessInner {
            layout,
            server: AgentServerProvider::new(config.agent_server.clone()),
            runtime: Handle::current(),
            locks: SandboxLocks::default(),
            starts: Arc::new(Semaphore::new(config.parallel_starts.max(1))),
            proofs: Semaphore::new(MAX_PARALLEL_PROOFS),
            tracked: Mutex::default(),
            facts: broadcast::channel(MAX_BUFFERED_FACTS).0,
            closed: CancellationToken::new(),
            config,
        };
        let inner = Arc::new(inner);
        let (closed, logs) = (inner.closed.clone(), Arc::clone(&inner).keep_logs_short());
        inner.runtime.spawn(async move {
            closed.run_until_cancelled(logs).await;
        });
        Ok(Self { inner })
    }

    pub(crate) fn inner(&self) -> &Arc<ProcessInner> {
        &self.inner
    }

    /// Runs an operation to its end, whatever becomes of the caller.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        // What is logged, and the calls in it, belong to whoever asked.
        let task = self.inner.runtime.spawn(work.in_current_span());
        task.await
            .map_err(|error| SandboxError::Other(Box::new(error)))?
    }
}

/// Stops watching. The sandboxes go on; the next service adopts them.
impl Drop for ProcessSandboxes {
    fn drop(&mut self) {
        self.inner.closed.cancel();
    }
}

impl ProcessInner {
    pub(crate) fn paths(&self, id: &SandboxId) -> SandboxPaths {
        self.layout.paths(id)
    }

    pub(crate) fn marker(&self, id: &SandboxId) -> Marker {
        Marker::new(&self.config.instance, id)
    }

    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<SandboxLockGuard, SandboxError> {
        self.locks
            .lock(id, &self.paths(id).lock, self.config.queue_limit)
            .await
    }
}

#[async_trait]
impl SandboxBackend for ProcessSandboxes {
    fn name(&self) -> &'static str {
        "process"
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            isolated: false,
        }
    }

    async fn prepare(&self, _spec: &SpecId, progress: &PrepareProgress) -> Result<(), SandboxError> {
        progress.report("installing the agent server; this takes some minutes the first time");
        // There is one template, and a sandbox of an older one starts with the present agent server.
        self.inner
            .server
            .command(&self.inner.runtime)
            .await
            .map(|_| ())
    }

    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        let command = self.inner.server.command(&self.inner.runtime).await?;
        // Waiting for a turn ends with the caller; what follows does not.
        let acquire_start_permit = self.inner.acquire_start_permit(&launch.id).await?;
        // So does waiting for this: what a caller has given up must not begin after what they ask for next.
        let guard = self.inner.lock(&launch.id).await?;
        let (inner, launch) = (Arc::clone(&self.inner), launch.clone());
        self.detached(async move { inner.start(launch, command, acquire_start_permit, guard).await })
            .await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        self.detached(async move { inner.observe(id).await }).await
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        let inner = Arc::clone(&self.inner);
        self.detached(async move { inner.observe_all().await })
            .await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        self.detached(async move { inner.stop(&id).await }).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        self.detached(async move { inner.remove(&id).await }).await
    }

    fn watch(&self) -> BoxStream<'static, BackendFact> {
        let facts = self.inner.facts.subscribe();
        // Ends with the backend; the sender itself lives as long as any monitor.
        let closed = self.inner.closed.clone();
        stream::unfold(facts, |mut facts| async move {
            loop {
                match facts.recv().await {
                    Ok(fact) => return Some((fact, facts)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "a watcher of sandboxes was too slow");
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .take_until(closed.cancelled_owned())
        .boxed()
    }

    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        let (inner, id, keys) = (Arc::clone(&self.inner), id.clone(), keys.to_vec());
        self.detached(async move { inner.logs(id, keys, tail).await })
            .await
    }

    async fn recipe(&self, _spec: &SpecId) -> Result<String, SandboxError> {
        // There is one template, as for `prepare`.
        Ok(recipe::of(&self.inner.config))
    }

    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let (paths, path) = (self.inner.paths(id), path.to_owned());
        let found = errors::blocking(move || confine::resolve(&paths, &path)).await?;
        let found = found.and_then(|path| path.into_os_string().into_string().ok());
        found.ok_or(SandboxError::NotFound)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let roots = self.inner.layout.clone();
        let made = errors::blocking(move || roots.create()).await?;
        made.map_err(|error| SandboxError::Unavailable {
            detail: format!("the sandbox directories cannot be used ({})", error.kind()),
            source: Some(Box::new(error)),
        })?;
        if let AgentServerSource::Command(command) = &self.inner.config.agent_server {
            let program = command.first().cloned().unwrap_or_default();
            let path = environment::search_path(&program, &self.inner.config.path);
            let found = errors::blocking(move || start::runnable(&program, &path)).await?;
            return found.map_err(|error| SandboxError::Unavailable {
                detail: "the configured agent-server command does not exist".to_owned(),
                source: Some(Box::new(error)),
            });
        }
        self.inner.server.check().await
    }
}
