//! [`DockerSandboxes`] implements the port. Each operation is a task that runs to its end even if its caller gives up.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    AGENT_SERVER, BackendCapabilities, BackendFact, BackendReachability, BackendState, LogStream,
    LogTail, PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
    SandboxLock, SandboxLocks,
};
use futures::stream::{self, BoxStream, StreamExt};
use secrecy::SecretString;
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use url::Url;

use crate::config::{DockerConfig, DockerSpec};
use crate::container::labels;
use crate::disk::DiskMonitor;
use crate::engine::Engine;
use crate::engine::watch::PING_TIMEOUT;
use crate::images::Images;
use crate::lifecycle::observe::Ownership;
use crate::lifecycle::state_cache::StateCache;
use crate::network::SandboxNetwork;
use crate::network::callback_check::{self, ReachableUrls};

/// Facts that a slow watcher may lag behind.
const MAX_BUFFERED_FACTS: usize = 1024;
/// Concurrent starts: more of them slow down all starts of an engine.
const MAX_PARALLEL_STARTS: usize = 8;
/// Longest wait for other operations on the same sandbox, and for a start permit.
pub(crate) const START_QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs sandboxes as containers of a Docker engine.
#[derive(Debug)]
pub struct DockerSandboxes {
    inner: Arc<DockerInner>,
}

/// The state that operations and watchers share.
#[derive(Debug)]
pub(crate) struct DockerInner {
    pub(crate) config: Arc<DockerConfig>,
    pub(crate) engine: Engine,
    pub(crate) images: Images,
    pub(crate) network: SandboxNetwork,
    pub(crate) disk: DiskMonitor,
    pub(crate) states: Arc<StateCache>,
    pub(crate) starts: Arc<Semaphore>,
    /// `None` until the first attempt to reach the engine.
    pub(crate) reachability: watch::Sender<Option<BackendReachability>>,
    reachable_urls: ReachableUrls,
    locks: SandboxLocks,
    /// Facts are shared, because the channel allocates its whole capacity at once.
    facts: broadcast::Sender<Arc<BackendFact>>,
    /// The runtime of the tasks, which outlive requests.
    runtime: Handle,
    /// Stops the watchers, not the sandboxes.
    closed: CancellationToken,
}

impl DockerSandboxes {
    /// Checks the configuration and starts the watchers. The engine need not run yet. Call it in the runtime that shall run
    /// the watchers; the runtime must outlive the backend. Containers of an earlier service are found when they are listed,
    /// inspected or started.
    pub fn new(config: DockerConfig) -> Result<Self, SandboxError> {
        check_specs(&config.specs).map_err(unusable)?;
        let runtime =
            Handle::try_current().map_err(|error| SandboxError::Other(Box::new(error)))?;
        let engine = Engine::new(&config)?;
        let config = Arc::new(config);
        let inner = Arc::new(DockerInner {
            images: Images::new(engine.clone(), Arc::clone(&config)),
            network: SandboxNetwork::new(engine.clone(), Arc::clone(&config)),
            disk: DiskMonitor::new(engine.clone(), Arc::clone(&config)),
            states: Arc::default(),
            starts: Arc::new(Semaphore::new(MAX_PARALLEL_STARTS)),
            reachability: watch::Sender::new(None),
            reachable_urls: ReachableUrls::default(),
            locks: SandboxLocks::default(),
            facts: broadcast::channel(MAX_BUFFERED_FACTS).0,
            runtime,
            closed: CancellationToken::new(),
            engine,
            config,
        });
        inner.spawn(Arc::clone(&inner).follow());
        inner.spawn(Arc::clone(&inner).recheck_changed());
        inner.spawn(Arc::clone(&inner).watch_disk_limits());
        Ok(Self { inner })
    }

    /// The host's address behind `host.docker.internal` in sandboxes. `None` if the engine has no such network, or is
    /// unreachable.
    pub async fn gateway(&self) -> Option<IpAddr> {
        self.inner.network.gateway().await
    }

    pub(crate) fn inner(&self) -> &DockerInner {
        &self.inner
    }

    /// Runs an operation to its end, even if the caller gives up.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        // The operation logs in the caller's span.
        let task = self.inner.runtime.spawn(work.in_current_span());
        task.await
            .map_err(|error| SandboxError::Other(Box::new(error)))?
    }
}

/// Stops the watchers. The sandboxes keep running, and the next service finds them.
impl Drop for DockerSandboxes {
    fn drop(&mut self) {
        self.inner.closed.cancel();
    }
}

impl DockerInner {
    /// Runs a task until it ends or the backend is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let closed = self.closed.clone();
        self.runtime.spawn(async move {
            closed.run_until_cancelled(task).await;
        });
    }

    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<SandboxLock, SandboxError> {
        let time_limit = tokio::time::sleep(START_QUEUE_TIMEOUT);
        self.locks.lock(id, time_limit).await
    }

    /// Sends a fact to all watchers, if any.
    pub(crate) fn report(&self, fact: BackendFact) {
        let _ = self.facts.send(Arc::new(fact));
    }

    async fn check_usable(&self) -> Result<(), SandboxError> {
        if let Some(BackendReachability::Unreachable { detail }) =
            self.reachability.borrow().clone()
        {
            return Err(unusable(detail));
        }
        self.engine
            .call_within("pinging the engine", PING_TIMEOUT, bollard::Docker::ping)
            .await
            .map_err(|error| unusable(error.detail()))?;
        self.network.check().await
    }

    async fn warnings(&self, id: &SandboxId, webhook_url: &Url) -> Vec<String> {
        let mut warnings = self.states.warnings(id);
        let Ok(Ownership::Ours(container)) = self.container(id).await else {
            return warnings;
        };
        let former = container.labels.get(labels::CALLBACK);
        let current = labels::address(webhook_url);
        if let Some(former) = former.filter(|former| **former != current) {
            warnings.push(format!(
                "the sandbox was created to report to {former}, and this service is now at {current}: its reports may \
                     not arrive; a new sandbox reports to the right URL"
            ));
        } else {
            let callback = callback_check::callback(
                &self.engine,
                &container.id,
                webhook_url,
                &self.reachable_urls,
            );
            warnings.extend(callback.await);
        }
        warnings
    }
}

fn check_specs(specs: &[DockerSpec]) -> Result<(), String> {
    if specs.is_empty() {
        return Err(
            "no sandbox template is configured: the operator has to set docker.image".to_owned(),
        );
    }
    for spec in specs {
        let id = &spec.id;
        if !spec.ports.iter().any(|port| port.name == AGENT_SERVER) {
            return Err(format!(
                "the sandbox template {id} has no port {AGENT_SERVER}: the operator has to add it to docker.ports"
            ));
        }
        let names = spec.env.keys().chain(spec.secret_env.keys());
        let ports = spec.ports.iter().map(|port| &port.name);
        let mut names = names.chain(ports);
        if let Some(name) = names.find(|name| name.is_empty() || name.contains(['=', ',', '\0'])) {
            return Err(format!(
                "the sandbox template {id} has the invalid name {name:?} in docker.env, docker.secret_env or docker.ports"
            ));
        }
        if spec
            .resources
            .cpus
            .is_some_and(|cpus| !(cpus > 0.0 && cpus < 1e6))
        {
            return Err(format!(
                "the sandbox template {id} has an invalid number of cores in docker.cpus"
            ));
        }
    }
    Ok(())
}

fn unusable(detail: String) -> SandboxError {
    SandboxError::Unavailable {
        detail,
        source: None,
    }
}

#[async_trait]
impl SandboxBackend for DockerSandboxes {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            isolated: true,
            // The container's environment is fixed at its creation. It holds the key, which VS Code's server reads at each
            // start.
            replaces_session_key: false,
        }
    }

    async fn prepare(&self, spec: &SpecId, progress: &PrepareProgress) -> Result<(), SandboxError> {
        let (inner, spec, progress) = (Arc::clone(&self.inner), spec.clone(), progress.clone());
        self.detached(async move {
            // A template that is no longer configured may still have containers, which need no image.
            if let Ok(spec) = inner.spec(&spec) {
                inner.images.ensure(spec, &progress).await?;
            }
            inner.network.ensure().await.map(drop)
        })
        .await
    }

    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        // Only the wait ends with the caller, not the operation.
        let guard = self.inner.lock(&launch.id).await?;
        let permit = self.inner.acquire_start_permit().await?;
        let (inner, launch) = (Arc::clone(&self.inner), launch.clone());
        self.detached(async move { inner.start(launch, guard, permit).await })
            .await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        Ok(self.inner.observe(id).await?)
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        self.inner.observe_all().await
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
        let closed = self.inner.closed.clone();
        stream::unfold(facts, |mut facts| async move {
            loop {
                match facts.recv().await {
                    Ok(fact) => return Some((Arc::unwrap_or_clone(fact), facts)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            missed,
                            "a watcher of sandboxes was too slow and missed facts; the next periodic list replaces them"
                        );
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .take_until(closed.cancelled_owned())
        .boxed()
    }

    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        let mut reachability = self.inner.reachability.subscribe();
        reachability.mark_changed();
        let closed = self.inner.closed.clone();
        stream::unfold(reachability, |mut reachability| async move {
            loop {
                reachability.changed().await.ok()?;
                let current = reachability.borrow_and_update().clone();
                if let Some(current) = current {
                    return Some((current, reachability));
                }
            }
        })
        .take_until(closed.cancelled_owned())
        .boxed()
    }

    async fn list_warnings(&self, id: &SandboxId, webhook_url: &Url) -> Vec<String> {
        self.inner.warnings(id, webhook_url).await
    }

    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        self.inner.logs(id, keys, tail).await
    }

    async fn recipe(&self, spec: &SpecId) -> Result<String, SandboxError> {
        self.inner.recipe(spec).await
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.inner.check_usable().await
    }
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;
    use tracing::Span;

    use super::*;

    #[tokio::test]
    async fn an_operation_runs_in_the_span_of_its_caller() {
        let _spans = tracing::subscriber::set_default(tracing_subscriber::registry());
        let spec = DockerSpec::new(SpecId::parse("x").unwrap(), "x:1");
        let mut config = DockerConfig::new(HostId::parse("host-1").unwrap(), vec![spec]);
        config.socket = Some("unix:///nonexistent/engine.sock".to_owned());
        let sandboxes = DockerSandboxes::new(config).unwrap();
        let work = async { Ok(Span::current().metadata().map(tracing::Metadata::name)) };
        let task = sandboxes.detached(work);
        let span = task.instrument(tracing::info_span!("start")).await;
        assert_eq!(span.unwrap(), Some("start"));
    }
}
