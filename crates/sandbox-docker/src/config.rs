//! What the Docker backend is told.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::id::{HostId, SpecId};
use secrecy::SecretString;

/// Configuration of [`DockerSandboxes`](crate::DockerSandboxes).
#[derive(Debug, Clone)]
pub struct DockerConfig {
    /// The engine: `unix:///var/run/docker.sock`, a rootless or Podman socket, or `tcp://HOST:PORT`. `None`: the usual place.
    pub socket: Option<String>,
    /// Which installation this is: everything made carries it as a label, so that two services on one engine leave each
    /// other's alone.
    pub instance: HostId,
    /// The templates, the default first. Never empty.
    pub specs: Vec<DockerSpec>,
    /// The address on which the engine publishes ports: loopback, unless the service or its clients are elsewhere.
    pub publish_address: std::net::IpAddr,
    /// The host name under which *we* reach published ports. `None`: the publish address (loopback if that is `0.0.0.0`).
    pub reach_host: Option<String>,
    /// The host name that clients see in `exposed_urls`. `None`: the same as ours.
    pub exposed_host: Option<String>,
    /// OCI runtime, such as `runsc`. `None`: the engine's default.
    pub runtime: Option<String>,
    /// What to do about the cloud metadata address (169.254.169.254).
    pub metadata: MetadataBlocking,
    /// How long a stopped agent server may take to deliver its last events before it is killed.
    pub grace: Duration,
    /// How long any call to the engine may take that is not a pull or a stop.
    pub call_limit: Duration,
    /// How long a pull may go on without any progress.
    pub pull_stall: Duration,
    /// How often disk limits are looked at where the engine cannot set them.
    pub disk_interval: Duration,
    /// Credentials for pulling images.
    pub registry: Option<RegistryCredentials>,
}

/// Credentials of a registry.
#[derive(Debug, Clone)]
pub struct RegistryCredentials {
    /// The registry's host, as images name it (`ghcr.io`).
    pub server: String,
    /// Account.
    pub username: String,
    /// Password or token.
    pub password: SecretString,
}

/// How the cloud metadata address is kept from sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataBlocking {
    /// Blocked where this host allows it (root, `iptables`, the engine's `DOCKER-USER` chain), else a warning.
    #[default]
    Auto,
    /// The backend is not usable unless it is blocked.
    Required,
    /// Somebody else does it, or sandboxes may use it.
    Off,
}

/// How a sandbox is put down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PauseMode {
    /// Stopped: memory and processor are free; running programs end.
    #[default]
    Stop,
    /// Frozen: programs stay in memory and go on where they were.
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
    /// Bytes that its workspace and its changes to the image may take. `None`: no limit.
    pub disk: Option<u64>,
}

/// A directory or file of the host inside sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// Absolute path on the engine's host.
    pub source: String,
    /// Absolute path inside.
    pub target: String,
    /// Whether it may be written to.
    pub writable: bool,
}

/// A port inside that clients may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPort {
    /// `AGENT_SERVER`, `VSCODE`, `WORKER_1`, …; workers get a variable of this name with the port.
    pub name: String,
    /// Port inside.
    pub port: u16,
}

/// A template for sandboxes.
#[derive(Debug, Clone)]
pub struct DockerSpec {
    /// Its id on the wire; by default the image.
    pub id: SpecId,
    /// The image, with a tag or digest.
    pub image: String,
    /// Program and arguments instead of the image's entry point. `None`: the image's own.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments. `None`: the image's own.
    pub command: Option<Vec<String>>,
    /// Further variables; they never replace what the service itself sets. Shown on the wire: no secrets.
    pub env: BTreeMap<String, String>,
    /// Further variables with secret values. Not shown.
    pub secret_env: BTreeMap<String, SecretString>,
    /// Where agents work; in `volume`, or it does not outlive the container.
    pub working_dir: String,
    /// Where the workspace volume is mounted.
    pub volume: String,
    /// User inside (`uid`, `uid:gid` or a name). `None`: the image's own.
    pub user: Option<String>,
    /// Limits.
    pub resources: ResourceLimits,
    /// BackendCapabilities that are kept; all others are dropped.
    pub capabilities: Vec<String>,
    /// Whether the image's own files are read-only (`/tmp` and `/run` stay writable, in memory).
    pub read_only: bool,
    /// How it is put down.
    pub pause: PauseMode,
    /// How long it may be RUNNING unused before it is paused.
    pub idle_stop: Option<Duration>,
    /// How long it may exist before it is deleted.
    pub lifetime: Option<Duration>,
    /// What clients may reach. Holds `AGENT_SERVER`.
    pub ports: Vec<ExposedPort>,
    /// Files of the host inside.
    pub mounts: Vec<BindMount>,
}

impl DockerSpec {
    /// The image of the agent server that this build was tested with.
    pub const DEFAULT_IMAGE: &str = "ghcr.io/openhands/agent-server:1.58.0-python";

    /// A template of this image with the usual ports, directories and limits.
    pub fn new(id: SpecId, image: impl Into<String>) -> Self {
        let port = |name: &str, port| ExposedPort {
            name: name.to_owned(),
            port,
        };
        Self {
            id,
            image: image.into(),
            entrypoint: None,
            command: Some(vec!["--port".to_owned(), "8000".to_owned()]),
            env: BTreeMap::new(),
            secret_env: BTreeMap::new(),
            working_dir: "/workspace/project".to_owned(),
            volume: "/workspace".to_owned(),
            user: None,
            resources: ResourceLimits {
                memory: Some(4 << 30),
                cpus: Some(2.0),
                pids: Some(1024),
                disk: Some(20 << 30),
            },
            // What package managers and the usual images need to set owners and to drop to another user.
            capabilities: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
                .map(str::to_owned)
                .into(),
            read_only: false,
            pause: PauseMode::Stop,
            idle_stop: Some(Duration::from_secs(30 * 60)),
            lifetime: None,
            ports: vec![
                port(domain::sandbox::AGENT_SERVER, 8000),
                port("VSCODE", 8001),
                port("WORKER_1", 8011),
                port("WORKER_2", 8012),
            ],
            mounts: Vec::new(),
        }
    }
}

impl DockerConfig {
    /// The defaults for this installation with these templates.
    pub fn new(instance: HostId, specs: Vec<DockerSpec>) -> Self {
        Self {
            socket: None,
            instance,
            specs,
            publish_address: std::net::Ipv4Addr::LOCALHOST.into(),
            reach_host: None,
            exposed_host: None,
            runtime: None,
            metadata: MetadataBlocking::Auto,
            grace: Duration::from_secs(10),
            call_limit: Duration::from_secs(30),
            pull_stall: Duration::from_secs(5 * 60),
            disk_interval: Duration::from_secs(60),
            registry: None,
        }
    }
}
