//! [`DockerSandboxes`] implements the port. Each operation is a task that runs to its end even if its caller gives up.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    BackendCapabilities, BackendFact, BackendReachability, BackendState, LogStream, LogTail,
    PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
    SandboxLifecycle, SandboxLock, SandboxLocks, SandboxReader,
};
use futures::stream::BoxStream;
use sandbox_provider::BackendTasks;
use secrecy::SecretString;
use tokio::sync::{Semaphore, watch};
use url::Url;

use crate::config::DockerConfig;
use crate::container::labels;
use crate::disk::DiskMonitor;
use crate::engine::Engine;
use crate::images::Images;
use crate::lifecycle::ownership::Ownership;
use crate::lifecycle::state_cache::StateCache;
use crate::network::SandboxNetwork;
use crate::network::callback_check::{self, ReachableUrls};
use crate::network::proxy::ProxyListener;

/// Of one ping of the engine.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const NAME: &str = "docker";

/// Concurrent starts: more of them slow down all starts of an engine.
const MAX_PARALLEL_STARTS: usize = 8;
/// Longest wait for other operations on the same sandbox, and for a start permit.
pub(crate) const START_QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs sandboxes as containers of a Docker engine.
#[derive(Debug)]
pub struct DockerSandboxes {
    inner: Arc<DockerInner>,
}

#[derive(Debug)]
pub(crate) struct DockerInner {
    pub(crate) config: Arc<DockerConfig>,
    pub(crate) engine: Engine,
    pub(crate) images: Images,
    pub(crate) network: SandboxNetwork,
    pub(crate) proxy: Arc<ProxyListener>,
    pub(crate) disk: DiskMonitor,
    pub(crate) states: Arc<StateCache>,
    pub(crate) starts: Arc<Semaphore>,
    /// `None` until the first attempt to reach the engine.
    pub(crate) reachability: watch::Sender<Option<BackendReachability>>,
    reachable_urls: ReachableUrls,
    locks: SandboxLocks,
    pub(crate) tasks: BackendTasks,
}

impl DockerSandboxes {
    /// Checks the configuration and starts the watchers. The engine need not run yet. Call it in the runtime that shall run
    /// the watchers; the runtime must outlive the backend. Containers of an earlier service are found when they are listed,
    /// inspected or started.
    pub fn new(config: DockerConfig) -> Result<Self, SandboxError> {
        let tasks = BackendTasks::new()?;
        let engine = Engine::new(&config)?;
        let config = Arc::new(config);
        let proxy = ProxyListener::new(engine.clone(), Arc::clone(&config), tasks.clone());
        let inner = Arc::new(DockerInner {
            proxy: Arc::new(proxy),
            images: Images::new(engine.clone(), Arc::clone(&config)),
            network: SandboxNetwork::new(engine.clone(), Arc::clone(&config)),
            disk: DiskMonitor::new(engine.clone(), Arc::clone(&config)),
            states: Arc::default(),
            starts: Arc::new(Semaphore::new(MAX_PARALLEL_STARTS)),
            reachability: watch::Sender::new(None),
            reachable_urls: ReachableUrls::default(),
            locks: SandboxLocks::default(),
            tasks,
            engine,
            config,
        });
        inner.tasks.spawn(Arc::clone(&inner).follow());
        inner.tasks.spawn(Arc::clone(&inner).recheck_changed());
        inner.tasks.spawn(Arc::clone(&inner).watch_disk_limits());
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
}

/// Stops the watchers. The sandboxes keep running, and the next service finds them.
impl Drop for DockerSandboxes {
    fn drop(&mut self) {
        self.inner.tasks.closed.cancel();
    }
}

impl DockerInner {
    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<SandboxLock, SandboxError> {
        let time_limit = tokio::time::sleep(START_QUEUE_TIMEOUT);
        self.locks.lock(id, time_limit).await
    }

    async fn check_usable(&self) -> Result<(), SandboxError> {
        if let Some(BackendReachability::Unreachable { detail }) =
            self.reachability.borrow().clone()
        {
            return Err(SandboxError::unavailable(detail));
        }
        self.engine
            .call_within("pinging the engine", PING_TIMEOUT, bollard::Docker::ping)
            .await
            .map_err(|error| SandboxError::unavailable(error.detail()))?;
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

#[async_trait]
impl SandboxBackend for DockerSandboxes {
    fn name(&self) -> &'static str {
        NAME
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
        let work = async move {
            // A template that is no longer configured may still have containers, which need no image.
            if let Ok(spec) = inner.spec(&spec) {
                inner.images.ensure(spec, &progress).await?;
            }
            inner.network.ensure().await.map(drop)
        };
        self.inner.tasks.detached(work).await
    }

    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        let inner = &self.inner;
        inner.tasks.watch_reachability(&inner.reachability)
    }

    async fn recipe(&self, spec: &SpecId) -> Result<String, SandboxError> {
        self.inner.recipe(spec).await
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.inner.check_usable().await
    }
}

#[async_trait]
impl SandboxLifecycle for DockerSandboxes {
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        // Only the wait ends with the caller, not the operation.
        let guard = self.inner.lock(&launch.id).await?;
        let permit = self.inner.acquire_start_permit().await?;
        let (inner, launch) = (Arc::clone(&self.inner), launch.clone());
        let work = async move { inner.start(launch, guard, permit).await };
        self.inner.tasks.detached(work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        Ok(self.inner.observe(id).await?)
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        self.inner.observe_all().await
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
impl SandboxReader for DockerSandboxes {
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
}
