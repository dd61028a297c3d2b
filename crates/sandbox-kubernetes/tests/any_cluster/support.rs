//! A backend on the cluster of the environment, and what happens inside of its pods.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use domain::id::{HostId, SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use fake_kubernetes::FakeCluster;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, EvictParams, GetParams, ListParams, PostParams, Request};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use port_conformance::suites::sandboxes::backend::launch as new_launch;
use sandbox_kubernetes::{ClusterAccess, KubernetesConfig, KubernetesSandboxes, PodEngine};
use serde::de::DeserializeOwned;
use tempfile::{NamedTempFile, TempDir};
use tokio::time::{Instant, sleep};

use crate::relay::Relay;

/// Set by `cargo xtask test-kubernetes`. Without it, the cluster is simulated.
const IMAGE_VARIABLE: &str = "TEST_KUBERNETES_IMAGE";
const NAMESPACE_VARIABLE: &str = "TEST_KUBERNETES_NAMESPACE";
const PROGRAM: &str = include_str!("program.py");
/// Where the simulated cluster mounts claims: a directory of every machine.
const MOUNT_POINT: &str = "/mnt";
/// As kubernetes-sigs/agent-sandbox installs its controller (`k8s/controller.yaml`).
const CONTROLLER_NAMESPACE: &str = "agent-sandbox-system";
const CONTROLLER_LABEL: &str = "app=agent-sandbox-controller";
const SANDBOX: &str = "agent-workspace/sandbox";
/// Until a program that has started answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(crate) struct Fresh {
    backend: KubernetesSandboxes,
    config: KubernetesConfig,
    client: Client,
    kubeconfig: Option<NamedTempFile>,
    /// Dropped in this order: claims are directories of the pods.
    simulated: Option<(FakeCluster, TempDir)>,
}

impl Deref for Fresh {
    type Target = KubernetesSandboxes;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

#[expect(clippy::disallowed_methods, reason = "`cargo xtask` sets it")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[expect(clippy::disallowed_methods, reason = "each test takes a new id")]
fn new_id() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

impl Fresh {
    /// Sandboxes that run the program of the tests.
    pub(crate) async fn new(engine: PodEngine) -> Self {
        Self::open(engine, true).await
    }

    /// The same, of which the backend alone reaches the API server by way of a relay.
    pub(crate) async fn behind_relay(engine: PodEngine) -> (Self, Relay) {
        let mut fresh = Self::new(engine).await;
        let relay = if let ClusterAccess::Address(url) = &fresh.config.access {
            let relay = Relay::to(url);
            fresh.config.access = ClusterAccess::Address(relay.url(url));
            relay
        } else {
            let (relay, file) = Relay::of_environment();
            fresh.config.access = ClusterAccess::File(file.path().to_owned());
            fresh.kubeconfig = Some(file);
            relay
        };
        fresh.restart().await;
        (fresh, relay)
    }

    /// Sandboxes that run the agent server of the image, if there is one: a simulated cluster has no images.
    pub(crate) async fn with_agent_server(engine: PodEngine) -> Self {
        Self::open(engine, variable(IMAGE_VARIABLE).is_none()).await
    }

    async fn open(engine: PodEngine, is_program: bool) -> Self {
        let instance = HostId::parse(format!("test-{}", new_id().simple())).unwrap();
        let mut config = KubernetesConfig::new(instance);
        config.engine = Some(engine);
        let spec = &mut config.specs[0];
        spec.id = SpecId::parse("example").unwrap();
        let simulated = if let Some(image) = variable(IMAGE_VARIABLE) {
            spec.image = image;
            None
        } else {
            let cluster = FakeCluster::start(engine == PodEngine::AgentSandbox).await;
            let claims = TempDir::new().unwrap();
            cluster.run_processes(claims.path().to_owned());
            MOUNT_POINT.clone_into(&mut spec.volume);
            MOUNT_POINT.clone_into(&mut spec.working_dir);
            config.access = ClusterAccess::Address(cluster.url());
            Some((cluster, claims))
        };
        let spec = &mut config.specs[0];
        if is_program {
            let program = ["python3", "-c", PROGRAM].map(str::to_owned);
            spec.entrypoint = Some(program.to_vec());
            spec.command = Some(Vec::new());
            let workspace = spec.volume.clone();
            spec.env.insert("WORKSPACE".to_owned(), workspace);
        }
        if let Some(namespace) = variable(NAMESPACE_VARIABLE) {
            config.namespace = namespace;
        }
        let access = match &config.access {
            ClusterAccess::Address(url) => Config::new(url.as_str().parse().unwrap()),
            ClusterAccess::Inferred | ClusterAccess::File(_) => Config::infer().await.unwrap(),
        };
        Self {
            backend: KubernetesSandboxes::new(config.clone()).await.unwrap(),
            config,
            client: Client::try_from(access).unwrap(),
            kubeconfig: None,
            simulated,
        }
    }

    /// How long a test keeps the API server away after that was noticed.
    pub(crate) fn absence(&self) -> Duration {
        match self.simulated {
            Some(_) => Duration::ZERO,
            None => Duration::from_secs(60),
        }
    }

    /// The service as it is after a crash: nothing in its memory.
    pub(crate) async fn restart(&mut self) {
        let backend = KubernetesSandboxes::new(self.config.clone());
        self.backend = backend.await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.config.namespace)
    }

    async fn pod(&self, id: &SandboxId) -> Option<Pod> {
        let all = self.pods().list(&ListParams::default()).await.unwrap();
        let is_its =
            |pod: &Pod| pod.annotations().get(SANDBOX).map(String::as_str) == Some(id.as_str());
        all.items.into_iter().find(is_its)
    }

    pub(crate) async fn pod_uid(&self, id: &SandboxId) -> Option<String> {
        self.pod(id).await?.uid()
    }

    /// As a person does who deletes it by mistake.
    pub(crate) async fn delete_pod(&self, id: &SandboxId) {
        let name = self.pod(id).await.unwrap().name_any();
        let (pods, params) = (self.pods(), DeleteParams::default());
        pods.delete(&name, &params).await.unwrap();
    }

    /// As a drain of its node does.
    pub(crate) async fn evict_pod(&self, id: &SandboxId) {
        let name = self.pod(id).await.unwrap().name_any();
        let (pods, params) = (self.pods(), EvictParams::default());
        pods.evict(&name, &params).await.unwrap();
    }

    /// Ends the controller of `Sandbox` resources, which its cluster starts again.
    pub(crate) async fn restart_controller(&self) {
        if let Some((cluster, _)) = &self.simulated {
            return cluster.restart_controllers();
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), CONTROLLER_NAMESPACE);
        let (params, all) = (DeleteParams::default(), ListParams::default());
        let all = all.labels(CONTROLLER_LABEL);
        let ended = pods.delete_collection(&params, &all).await.unwrap();
        let ended = ended.left().map_or(0, |list| list.items.len());
        assert_ne!(
            ended, 0,
            "no pod {CONTROLLER_LABEL} in {CONTROLLER_NAMESPACE}"
        );
    }

    pub(crate) async fn get(&self, id: &SandboxId, path: &str) -> String {
        self.ask(id, path, None).await
    }

    pub(crate) async fn post(&self, id: &SandboxId, path: &str, body: &str) {
        self.ask(id, path, Some(body)).await;
    }

    /// Asks the main process, through the API server. Waits until it listens.
    async fn ask(&self, id: &SandboxId, path: &str, body: Option<&str>) -> String {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let pod = self.pod(id).await.unwrap().name_any();
            let namespace = &self.config.namespace;
            let url = format!("/api/v1/namespaces/{namespace}/pods/{pod}:8000/proxy");
            let request = match body {
                None => Request::new(url).get(path, &GetParams::default()),
                Some(body) => {
                    let request = Request::new(format!("{url}/{path}"));
                    request.create(&PostParams::default(), body.as_bytes().to_vec())
                }
            };
            match self.client.request_text(request.unwrap()).await {
                Ok(text) => return text,
                Err(error) if Instant::now() > deadline => panic!("{path}: {error}"),
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Asserts that nothing of these sandboxes is left. What the API server deletes in the background has some time.
    pub(crate) async fn assert_removed(&self, ids: &[&SandboxId]) {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let (claims, secrets, pods) = tokio::join!(
                self.left::<PersistentVolumeClaim>(ids),
                self.left::<Secret>(ids),
                self.left::<Pod>(ids),
            );
            if claims + secrets + pods == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{claims} claims, {secrets} Secrets and {pods} pods are left"
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The number of objects of a kind that belong to one of these sandboxes.
    async fn left<K>(&self, ids: &[&SandboxId]) -> usize
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + DeserializeOwned + Debug,
    {
        let objects: Api<K> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let all = objects.list(&ListParams::default()).await.unwrap();
        let owners = all
            .items
            .iter()
            .filter_map(|it| it.annotations().get(SANDBOX));
        owners
            .filter(|owner| ids.iter().any(|id| id.as_str() == **owner))
            .count()
    }
}

pub(crate) fn launch() -> SandboxLaunch {
    new_launch(new_id(), &SpecId::parse("example").unwrap())
}

pub(crate) async fn exit(fresh: &Fresh, id: SandboxId) {
    fresh.post(&id, "exit", "").await;
}

pub(crate) async fn write_log_line(fresh: &Fresh, id: SandboxId, line: String) {
    fresh.post(&id, "print", &line).await;
}
