//! [`KubernetesSandboxes`] implements the ports. Each operation is a task that runs to its end even if its caller gives up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{
    BackendCapabilities, BackendFact, BackendReachability, BackendState, LogStream, LogTail,
    PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
    SandboxLifecycle, SandboxLock, SandboxLocks, SandboxReader,
};
use endpoint_guard::{EndpointGuard, GuardError, ListeningSocket};
use futures::stream::BoxStream;
use moka::sync::Cache;
use sandbox_provider::{BackendTasks, accept_for_gateway};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use url::Url;

use crate::changes::Changes;
use crate::cluster::{Cluster, Found};
use crate::config::{KubernetesConfig, KubernetesSpec};
use crate::errors::ClusterError;
use crate::manifest::{address, fingerprint};
use crate::names;
use crate::proxy::{self, PodAddresses};

pub(crate) const NAME: &str = "kubernetes";

/// Starts that wait for their pods at the same time. The cluster does the work.
pub(crate) const MAX_PARALLEL_STARTS: usize = 64;
/// Longest wait for other operations on the same sandbox, and for a place among the starts.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(120);
/// For the answer to "does the cluster work now".
const CHECK_LIMIT: Duration = Duration::from_secs(4);
/// Removed sandboxes of the last minutes, whose late events are no news.
const REMOVED_LIFETIME: Duration = Duration::from_secs(10 * 60);
const MAX_REMOVED: u64 = 10_000;
const MAX_RUNNING_PODS: u64 = 100_000;

/// Runs sandboxes as pods of a cluster.
#[derive(Debug)]
pub struct KubernetesSandboxes {
    inner: Arc<KubernetesInner>,
}

#[derive(Debug)]
pub(crate) struct KubernetesInner {
    pub(crate) config: Arc<KubernetesConfig>,
    pub(crate) cluster: Cluster,
    pub(crate) changes: Changes,
    pub(crate) removed: Cache<SandboxId, ()>,
    pub(crate) addresses: Arc<PodAddresses>,
    /// The uid of the pod that was last seen to run, by the name of its objects.
    pub(crate) running_pods: Cache<String, String>,
    /// `None` until the first answer of the API server, or its absence.
    pub(crate) reachability: watch::Sender<Option<BackendReachability>>,
    starts: Semaphore,
    locks: SandboxLocks,
    pub(crate) tasks: BackendTasks,
}

impl KubernetesSandboxes {
    /// Reads the credentials and starts the watchers. The API server need not answer yet. Call it in the runtime that shall
    /// run the watchers; the runtime must outlive the backend. Pods of an earlier service are found when they are listed,
    /// inspected or started.
    ///
    /// # Errors
    /// The credentials cannot be read.
    pub async fn new(config: KubernetesConfig) -> anyhow::Result<Self> {
        let tasks = BackendTasks::new()?;
        let config = Arc::new(config);
        let inner = Arc::new(KubernetesInner {
            cluster: Cluster::new(Arc::clone(&config)).await?,
            changes: Changes::default(),
            removed: Cache::builder()
                .max_capacity(MAX_REMOVED)
                .time_to_live(REMOVED_LIFETIME)
                .build(),
            addresses: Arc::default(),
            running_pods: Cache::new(MAX_RUNNING_PODS),
            reachability: watch::Sender::new(None),
            starts: Semaphore::new(MAX_PARALLEL_STARTS),
            locks: SandboxLocks::default(),
            tasks,
            config,
        });
        inner.tasks.spawn(Arc::clone(&inner).follow_pods());
        inner.tasks.spawn(Arc::clone(&inner).follow_sandboxes());
        Ok(Self { inner })
    }

    /// Listens for the connections of pods to other machines, if they have a proxy.
    ///
    /// # Errors
    /// Another program uses the port.
    pub fn listen(&self) -> anyhow::Result<()> {
        let config = &self.inner.config;
        if let (Some(gateway), Some(port)) = (&config.egress, config.proxy_port) {
            let listener = proxy::listen(port).with_context(|| {
                format!("cannot listen at port {port} for sandboxes: free it, or choose another one in kubernetes.proxy_port")
            })?;
            let addresses = Arc::clone(&self.inner.addresses) as _;
            let tasks = self.inner.tasks.clone();
            let accepted = accept_for_gateway(listener, Arc::clone(gateway), addresses, tasks);
            self.inner.tasks.spawn(accepted);
        }
        Ok(())
    }

    pub(crate) fn inner(&self) -> &KubernetesInner {
        &self.inner
    }
}

/// Stops the watchers. The sandboxes keep running, and the next service finds them.
impl Drop for KubernetesSandboxes {
    fn drop(&mut self) {
        self.inner.tasks.closed.cancel();
    }
}

impl KubernetesInner {
    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<SandboxLock, SandboxError> {
        self.locks.lock(id, tokio::time::sleep(QUEUE_TIMEOUT)).await
    }

    pub(crate) fn spec(&self, id: &SpecId) -> Result<&KubernetesSpec, SandboxError> {
        let spec = self.config.specs.iter().find(|spec| spec.id == *id);
        spec.ok_or_else(|| {
            SandboxError::start_failed(format!(
                "the sandbox has no pod, and its template {id} is not configured: the operator has to configure it again"
            ))
        })
    }

    async fn start_in_turn(
        &self,
        launch: &SandboxLaunch,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let _lock = self.lock(&launch.id).await?;
        let permit = timeout(QUEUE_TIMEOUT, self.starts.acquire()).await;
        let _permit = permit
            .map_err(|_| SandboxError::TimedOut {
                what: "waiting for other starts in the cluster",
            })?
            .map_err(SandboxError::other)?;
        self.start(launch).await
    }

    async fn remove_and_forget(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let _lock = self.lock(id).await?;
        self.removed.insert(id.clone(), ());
        self.remove(id).await
    }

    async fn state(&self, found: &Found) -> Option<BackendState> {
        let state = found.state()?;
        let has_ended = matches!(state, crate::state::PodState::Exited(_));
        let detail = if has_ended {
            self.describe(found).await
        } else {
            String::new()
        };
        Some(state.into_backend(detail))
    }

    /// Claims first: a claim is made before everything else of its sandbox.
    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        let cluster = &self.cluster;
        let claims = cluster.list("listing the claims", &cluster.claims).await?;
        let sandboxes = match cluster.sandboxes().await? {
            Some(api) => cluster.list("listing the Sandboxes", &api).await?,
            None => Vec::new(),
        };
        let pods = cluster.list("listing the pods", &cluster.pods).await?;
        let mut all = std::collections::BTreeMap::<SandboxId, Found>::new();
        for claim in claims {
            if let Some(id) = cluster.names.sandbox(&claim.metadata) {
                all.entry(id).or_default().claim = Some(claim);
            }
        }
        for sandbox in sandboxes {
            if let Some(id) = cluster.names.sandbox(&sandbox.metadata) {
                all.entry(id).or_default().sandbox = Some(sandbox);
            }
        }
        for pod in pods {
            if let Some(id) = cluster.names.sandbox(&pod.metadata) {
                all.entry(id).or_default().pod = Some(pod);
            }
        }
        let mut facts = Vec::new();
        for (id, found) in all {
            if let Some(state) = self.state(&found).await {
                facts.push(BackendFact { id, state });
            }
        }
        Ok(facts)
    }

    /// `Unavailable` with the cause if the watch of the cluster has lost it.
    fn check_contact(&self) -> Result<(), SandboxError> {
        match self.reachability.borrow().clone() {
            Some(BackendReachability::Unreachable { detail }) => {
                Err(SandboxError::unavailable(detail))
            }
            Some(BackendReachability::Reachable) | None => Ok(()),
        }
    }

    /// `Unavailable` with the cause if the cluster does not answer now.
    async fn check(&self) -> Result<(), SandboxError> {
        self.check_contact()?;
        let asking = "asking the API server";
        let version = self.cluster.call_within(CHECK_LIMIT, asking, || {
            self.cluster.client().apiserver_version()
        });
        Ok(version.await.map(drop)?)
    }
}

#[async_trait]
impl SandboxBackend for KubernetesSandboxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            isolated: true,
            // A pod that runs keeps the environment of its start.
            replaces_session_key: false,
        }
    }

    /// Pulls nothing: only a node that is chosen can do that. Every start asks for it, so it costs no request.
    async fn prepare(&self, _: &SpecId, _: &PrepareProgress) -> Result<(), SandboxError> {
        self.inner.check_contact()
    }

    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        let inner = &self.inner;
        inner.tasks.watch_reachability(&inner.reachability)
    }

    async fn recipe(&self, id: &SpecId) -> Result<String, SandboxError> {
        let inner = &self.inner;
        let launch = placeholder(id)?;
        let manifest = inner.manifest(&launch, inner.spec(id)?);
        let engine = inner
            .cluster
            .engine()
            .await
            .map_err(|error| SandboxError::unavailable(error.detail()))?;
        Ok(fingerprint(&manifest, engine))
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.inner.check().await
    }
}

/// A launch of no sandbox.
fn placeholder(spec: &SpecId) -> Result<SandboxLaunch, SandboxError> {
    Ok(SandboxLaunch {
        id: SandboxId::parse("recipe").map_err(SandboxError::other)?,
        owner: OwnerId::parse("recipe").map_err(SandboxError::other)?,
        spec: spec.clone(),
        session_key: SecretString::default(),
        secret_key: SecretString::default(),
        webhook_url: Url::parse("http://recipe/").map_err(SandboxError::other)?,
        cors_origins: Vec::new(),
        dormant: false,
        progress: PrepareProgress::silent(),
    })
}

impl KubernetesInner {
    /// A pod of the default template, for no sandbox.
    pub(crate) fn default_pod(&self) -> Result<Value, SandboxError> {
        let spec = self.config.specs.first();
        let spec = spec.ok_or_else(|| SandboxError::other("there is no template"))?;
        Ok(self.manifest(&placeholder(&spec.id)?, spec).pod())
    }
}

#[async_trait]
impl SandboxLifecycle for KubernetesSandboxes {
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        let (inner, launch) = (Arc::clone(&self.inner), launch.clone());
        let work = async move { inner.start_in_turn(&launch).await };
        self.inner.tasks.detached(work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        let name = self.inner.cluster.names.of(id);
        let found = self.inner.cluster.look(&name).await?;
        Ok(self.inner.state(&found).await)
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        self.inner.list().await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move {
            let _lock = inner.lock(&id).await?;
            inner.stop(&id).await
        };
        self.inner.tasks.detached(work).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { inner.remove_and_forget(&id).await };
        self.inner.tasks.detached(work).await
    }

    fn watch(&self) -> BoxStream<'static, BackendFact> {
        self.inner.tasks.watch()
    }
}

#[async_trait]
impl SandboxReader for KubernetesSandboxes {
    async fn list_warnings(&self, id: &SandboxId, webhook_url: &Url) -> Vec<String> {
        let name = self.inner.cluster.names.of(id);
        let claim = self.inner.cluster.call("reading the claim", || {
            self.inner.cluster.claims.get_opt(&name)
        });
        let claim: Result<_, ClusterError> = claim.await;
        let Ok(Some(claim)) = claim else {
            return Vec::new();
        };
        let former = names::text(&claim.metadata, names::CALLBACK);
        let current = address(webhook_url);
        let former = former.filter(|former| **former != current);
        former.map_or_else(Vec::new, |former| {
            vec![format!(
                "the sandbox was created to report to {former}, and this service is now at {current}: its reports may not \
                 arrive until it is paused and resumed"
            )]
        })
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

/// Addresses of pods are those of other machines: no socket of this one proves anything.
#[async_trait]
impl EndpointGuard for KubernetesSandboxes {
    async fn prove(&self, _: &str, _: SocketAddr) -> Result<Option<ListeningSocket>, GuardError> {
        Ok(None)
    }
}
