//! Configuration of the Docker backend.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::agent::spending::NanoUsd;
use domain::egress_list::EgressList;
use domain::id::{HostId, SpecId};
use ipnet::Ipv4Net;
use sandbox_provider::container_settings::ExposedPort;
use sandbox_provider::{EgressPolicy, EgressSlot};
use secrecy::SecretString;
use settings::{SettingLayers, SettingReader};

use crate::section::SECTION;

/// Configuration of [`DockerSandboxes`](crate::DockerSandboxes).
#[derive(Debug, Clone)]
pub struct DockerConfig {
    /// The engine: `unix:///var/run/docker.sock`, a rootless or Podman socket, or `tcp://HOST:PORT`. `None`: Docker's
    /// default.
    pub socket: Option<String>,
    /// The installation. All resources carry it as a label, so that two services on one engine leave each other's resources
    /// alone.
    pub instance: HostId,
    /// The templates, the default first. Never empty.
    pub specs: Vec<DockerSpec>,
    /// The address on which the engine publishes ports: loopback, unless the service or its clients are elsewhere.
    pub publish_address: std::net::IpAddr,
    /// The host name under which the service reaches published ports. `None`: the publish address (loopback if that is
    /// `0.0.0.0`).
    pub reach_host: Option<String>,
    /// The host name for clients in `exposed_urls`. `None`: the same as for the service.
    pub exposed_host: Option<String>,
    /// OCI runtime, such as `runsc`. `None`: the engine's default.
    pub runtime: Option<String>,
    /// Whether to block the cloud metadata address (169.254.169.254).
    pub metadata: MetadataBlocking,
    /// What containers reach beside the service. Rules of the host's packet filter enforce it.
    pub policy: EgressPolicy,
    /// The service's forward proxy. `None`: no container uses it.
    pub egress: Option<EgressSlot>,
    /// Whether new containers use it. Existing ones keep what they were created with.
    pub has_proxy: bool,
    /// The port of the proxy at the host's address in the sandboxes' network.
    pub proxy_port: u16,
    /// Private networks and addresses that containers reach through the proxy.
    pub reachable_networks: Vec<Ipv4Net>,
    /// Time for a stopped agent server to deliver its last events before it is killed.
    pub grace: Duration,
    /// Time for a call to the engine, except pulls and stops.
    pub call_limit: Duration,
    /// Longest time without progress of a pull.
    pub pull_stall: Duration,
    /// Interval of disk measurements.
    pub disk_interval: Duration,
    /// Credentials for pulling images.
    pub registry: Option<RegistryCredentials>,
}

/// Credentials of a registry.
#[derive(Debug, Clone)]
pub struct RegistryCredentials {
    /// The registry's host as in image names (`ghcr.io`).
    pub server: String,
    /// Account.
    pub username: String,
    /// Password or token.
    pub password: SecretString,
}

/// How sandboxes are kept from the cloud metadata address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataBlocking {
    /// Block it if this host allows that (root, `iptables`, the engine's `DOCKER-USER` chain); otherwise warn.
    #[default]
    Auto,
    /// The backend is unusable unless the address is blocked.
    Required,
    /// Do not block it: the operator does, or sandboxes may use it.
    Off,
}

/// How a sandbox is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PauseMode {
    /// Stopped: memory and processor are released; running programs end.
    #[default]
    Stop,
    /// Frozen: programs stay in memory and continue later.
    Freeze,
}

/// Limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceLimits {
    /// Memory in bytes, without swap on top. `None`: no limit.
    pub memory: Option<u64>,
    /// Processor cores. `None`: no limit.
    pub cpus: Option<f64>,
    /// Processes and threads. `None`: no limit.
    pub pids: Option<u32>,
    /// Bytes of its workspace and its changes to the image. `None`: no limit.
    pub disk: Option<u64>,
}

/// A directory or file of the host that is mounted into sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// Absolute path on the engine's host.
    pub source: String,
    /// Absolute path in the sandbox.
    pub target: String,
    /// Whether sandboxes may write to it.
    pub writable: bool,
}

/// A template for sandboxes.
#[derive(Debug, Clone)]
pub struct DockerSpec {
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
    /// The agents' working directory. Must be below `volume` to outlive the container.
    pub working_dir: String,
    /// Where the workspace volume is mounted.
    pub volume: String,
    /// User in the container (`uid`, `uid:gid` or a name). `None`: the image's own.
    pub user: Option<String>,
    /// Limits.
    pub resources: ResourceLimits,
    /// Linux capabilities to keep; all others are dropped.
    pub capabilities: Vec<String>,
    /// Whether the image's files are read-only (`/tmp` and `/run` stay writable, in memory).
    pub read_only: bool,
    /// How a sandbox is paused.
    pub pause: PauseMode,
    /// Idle time after which a RUNNING sandbox is paused.
    pub idle_stop: Option<Duration>,
    /// Time after which a sandbox is deleted.
    pub lifetime: Option<Duration>,
    /// What a conversation in its sandboxes may spend on models.
    pub conversation_budget: Option<NanoUsd>,
    /// The hosts that its sandboxes may reach with [`EgressPolicy::AllowList`]. `None`: those of `egress.allow`.
    pub egress: Option<EgressList>,
    /// The ports that clients may reach, among them `AGENT_SERVER`.
    pub ports: Vec<ExposedPort>,
    /// Mounts of host files.
    pub mounts: Vec<BindMount>,
}

/// Reads the defaults of `config/default.toml`.
fn defaults<T>(read: impl FnOnce(&SettingReader<'_>) -> T) -> T {
    let layers = SettingLayers::load(vec![SECTION], None, &[]);
    read(&SettingReader::new(&layers, &[]))
}

impl DockerSpec {
    /// A template of this image with the default ports, directories and limits.
    pub fn new(id: SpecId, image: impl Into<String>) -> Self {
        Self {
            id,
            image: image.into(),
            ..defaults(Self::read)
        }
    }
}

impl DockerConfig {
    /// The default configuration of this installation with these templates.
    pub fn new(instance: HostId, specs: Vec<DockerSpec>) -> Self {
        Self {
            specs,
            ..defaults(|reader| Self::read(reader, instance))
        }
    }
}
