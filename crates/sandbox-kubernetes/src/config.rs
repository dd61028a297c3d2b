//! Configuration of the Kubernetes backend.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use domain::agent::spending::NanoUsd;
use domain::egress_list::EgressList;
use domain::id::{HostId, SpecId};
use ipnet::Ipv4Net;
use sandbox_provider::container_settings::ExposedPort;
use sandbox_provider::{EgressPolicy, EgressSlot};
use secrecy::SecretString;
use settings::{SettingLayers, SettingReader};
use url::Url;

use crate::section::SECTION;

/// Configuration of [`KubernetesSandboxes`](crate::KubernetesSandboxes).
#[derive(Debug, Clone)]
pub struct KubernetesConfig {
    /// How to reach the API server.
    pub access: ClusterAccess,
    /// The installation. All objects carry a hash of it as a label.
    pub instance: HostId,
    /// The namespace of the sandboxes, in which nothing else should be.
    pub namespace: String,
    /// Which objects make pods. `None`: `Sandbox` resources where the cluster has them.
    pub engine: Option<PodEngine>,
    /// The class of the claims. `None`: the cluster's default.
    pub storage_class: Option<String>,
    /// The access mode of the claims.
    pub access_mode: &'static str,
    /// Names of Secrets in the namespace, for pulling images.
    pub pull_secrets: Vec<String>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Where pods reach the service, as far as that is configured. Only `doctor` asks: each launch has its own address.
    pub callback_url: Option<Url>,
    /// What sandboxes reach beside the service.
    pub policy: EgressPolicy,
    /// Whether the network of the cluster keeps the policy.
    pub enforces_egress: bool,
    /// The service's forward proxy, for pods that use it.
    pub egress: Option<EgressSlot>,
    /// Whether new pods use it.
    pub has_proxy: bool,
    /// The port of the proxy, at the host of the callbacks. `None`: it does not listen.
    pub proxy_port: Option<u16>,
    /// Private networks that pods reach through the proxy.
    pub reachable_networks: Vec<Ipv4Net>,
    /// The templates, the default first. Never empty.
    pub specs: Vec<KubernetesSpec>,
    /// Time for a stopped agent server to deliver its last events before it is killed.
    pub grace: Duration,
    /// Time for a request to the API server.
    pub call_limit: Duration,
    /// Time for a pod to run, with scheduling and the pull of its image.
    pub start_limit: Duration,
}

/// How to reach the API server.
#[derive(Debug, Clone)]
pub enum ClusterAccess {
    /// With the service account of this pod, else as `kubectl` does: `$KUBECONFIG`, or `~/.kube/config`.
    Inferred,
    /// With the current context of a file.
    File(PathBuf),
    /// Without credentials, for a fake API server.
    Address(Url),
}

/// Which objects make pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodEngine {
    /// `Sandbox` resources of kubernetes-sigs/agent-sandbox, whose controller makes a pod that is gone again.
    AgentSandbox,
    /// Pods of the service's own.
    Pods,
}

/// A template for sandboxes.
#[derive(Debug, Clone)]
pub struct KubernetesSpec {
    /// Its id in the API; by default the image.
    pub id: SpecId,
    /// The image, with a tag or digest.
    pub image: String,
    /// Program and arguments instead of the image's entry point. `None`: the image's own.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments. `None`: the image's own.
    pub command: Option<Vec<String>>,
    /// Additional variables. They never replace what the service sets. Visible in the API, so not for secrets.
    pub env: BTreeMap<String, String>,
    /// Additional variables with secret values, which the API does not show.
    pub secret_env: BTreeMap<String, SecretString>,
    /// The agents' working directory. Must be below `volume` to outlive the pod.
    pub working_dir: String,
    /// Where the claim is mounted.
    pub volume: String,
    /// The user of all processes. `None`: the image's own.
    pub user: Option<i64>,
    /// The group that owns the claim's files. `None`: as the storage makes them, usually root's.
    pub group: Option<i64>,
    /// Memory in bytes, also reserved. `None`: no limit.
    pub memory: Option<u64>,
    /// Processor cores. `None`: no limit.
    pub cpus: Option<f64>,
    /// Processor cores that the scheduler reserves. `None`: none.
    pub reserved_cpus: Option<f64>,
    /// Bytes of the claim, and of the pod's files outside of it.
    pub disk: u64,
    /// Linux capabilities to keep; all others are dropped.
    pub capabilities: Vec<String>,
    /// `gvisor`, `kata`, … `None`: the cluster's default.
    pub runtime_class: Option<String>,
    /// Idle time after which a RUNNING sandbox is paused.
    pub idle_stop: Option<Duration>,
    /// Time after which a sandbox is deleted.
    pub lifetime: Option<Duration>,
    /// What a conversation in its sandboxes may spend on models.
    pub conversation_budget: Option<NanoUsd>,
    /// The ports that clients may reach, among them `AGENT_SERVER`.
    pub ports: Vec<ExposedPort>,
    /// The hosts that its sandboxes may reach with [`EgressPolicy::AllowList`]. `None`: those of `egress.allow`.
    pub egress: Option<EgressList>,
}

impl KubernetesConfig {
    /// Secret values of the templates, which logs must not show.
    pub(crate) fn secret_values(&self) -> Vec<SecretString> {
        let specs = self.specs.iter();
        specs
            .flat_map(|spec| spec.secret_env.values().cloned())
            .collect()
    }

    /// The default configuration of this installation.
    pub fn new(instance: HostId) -> Self {
        let layers = SettingLayers::load(vec![SECTION], None, &[]);
        Self::read(&SettingReader::new(&layers, &[]), instance)
    }
}
