//! How a sandbox backend joins the service: its settings, the choice of `auto`, its ports, and the checks of `doctor`.
//!
//! Knows: what the service asks a backend before and at the start. Must never know: any technology of sandboxes.
//!
//! A backend is a crate with a [`SandboxProvider`]; the service lists it in `compose.rs`. The provider reads the settings of
//! its backend into a [`ConfiguredBackend`], also when another backend is chosen.

mod agent_server;
mod container_environment;
pub mod container_settings;
mod digest;
mod disk_limit;
mod egress;
mod java;
mod proxy_listener;
mod report;
mod tasks;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::spending::NanoUsd;
use domain::id::HostId;
use domain::sandbox::{
    SandboxBackend, SandboxError, SandboxLifecycle, SandboxReader, SandboxSpec, SandboxSpecCatalog,
    SingleUserRule,
};
use endpoint_guard::EndpointGuard;
use futures::future::BoxFuture;
use settings::{EnvVariables, SettingReader, SettingSection};
use url::{Host, Url};

pub use agent_server::{
    AGENT_SERVER_PORT, FIXED_VARIABLES, SECRET_KEY_VARIABLE, SESSION_KEY_VARIABLE,
    SandboxVariables, WEBHOOKS_PREFIX, add_launch_variables, describe_exit, quote_log,
};
pub use container_environment::{add_container_variables, shown_variables};
pub use digest::short_digest;
pub use disk_limit::{OverLimitGrace, over_disk_limit};
pub use egress::{
    CERTIFICATE_VARIABLES, EgressGateway, EgressPolicy, EgressRoute, EgressSlot,
    SYSTEM_CERTIFICATES, add_proxy_variables, authority_of, is_proxy_variable, reachable_network,
    sends_secrets,
};
pub use java::{java_trust_store, java_trust_store_path};
pub use proxy_listener::{
    SandboxAddresses, accept_for_gateway, can_forge_addresses, listen_for_sandboxes,
};
pub use report::DoctorReport;
pub use tasks::BackendTasks;

/// Registers a sandbox backend.
pub trait SandboxProvider: Send + Sync {
    /// The value of `sandbox.backend` that chooses it, and the result of [`SandboxBackend::name`].
    fn name(&self) -> &'static str;

    /// Its section of the configuration.
    fn section(&self) -> SettingSection {
        SettingSection::default()
    }

    /// Reads its settings, and records all their problems.
    fn configure(&self, reader: &SettingReader<'_>) -> Arc<dyn ConfiguredBackend>;

    /// Whether a data directory contains its sandboxes, although no service recorded its backend there.
    fn has_sandboxes(&self, data_dir: &Path) -> bool {
        let _ = data_dir;
        false
    }

    /// Acts as a helper program of the backend if the arguments of the service's program ask for that. Runs before threads
    /// exist, and returns only when the helper failed.
    fn run_helper(&self, arguments: &[OsString]) -> Option<io::Error> {
        let _ = arguments;
        None
    }
}

/// A backend with its settings. Methods create nothing before [`open`](Self::open).
#[async_trait]
pub trait ConfiguredBackend: Debug + Send + Sync {
    /// Its properties.
    fn features(&self) -> BackendFeatures;

    /// Whether `auto` takes it at the first start: the reason, or the reason against it with what to do. Answers within
    /// seconds.
    async fn probe(&self, installation: &Installation<'_>) -> Result<&'static str, String>;

    /// Opens the backend. What it needs (an engine) need not be available yet.
    async fn open(&self, installation: &Installation<'_>) -> anyhow::Result<SandboxPorts>;

    /// Checks for `doctor` whether sandboxes could start here. `None` if they could not.
    async fn examine(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) -> Option<CallbackCheck>;

    /// For the command `prepare`: installs what a first start would install, and returns the agent server's command.
    /// `None` if the backend installs nothing on this machine.
    async fn prepare(
        &self,
        installation: &Installation<'_>,
    ) -> Option<anyhow::Result<Vec<OsString>>> {
        let _ = installation;
        None
    }
}

/// The installation that a backend serves.
#[derive(Clone, Copy)]
pub struct Installation<'a> {
    /// The name of its sandboxes' host in the store.
    pub host: &'a HostId,
    /// The absolute path of the data directory, which may not exist yet.
    pub data_dir: &'a Path,
    /// The environment of the service. It may contain secrets.
    pub variables: &'a EnvVariables,
}

/// Properties of a backend that the service asks before it opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendFeatures {
    /// The name of its provider.
    pub name: &'static str,
    /// What its sandboxes are, in the plural: `containers`.
    pub noun: &'static str,
    /// Whether sandboxes are isolated from this machine.
    pub is_isolated: bool,
    /// Set if only one user may have sandboxes.
    pub single_user: Option<SingleUserRule>,
    /// Whether it enforces [`EgressPolicy::AllowList`] and [`EgressPolicy::None`].
    pub enforces_egress: bool,
    /// Whether services on several machines can manage the same sandboxes (`sandbox.host`).
    pub can_share_host: bool,
    /// Warm sandboxes to keep unless `sandbox.warm` says otherwise.
    pub warm: u32,
    /// Concurrent boots of agent servers, unless `sandbox.parallel_starts` says otherwise.
    pub parallel_starts: usize,
    /// The network of the sandboxes.
    pub network: SandboxNetworking,
}

/// How sandboxes reach this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxNetworking {
    /// They share its network, so its loopback addresses are theirs.
    Shared,
    /// They have a network of their own.
    Separate {
        /// The name by which sandboxes reach the machine that runs them.
        host: &'static str,
        /// Whether another machine seems to run them.
        is_remote: bool,
    },
    /// They have a network of their own, in which the backend forwards connections from this address to the listener for
    /// callbacks ([`SandboxPorts::callbacks`]).
    Forwarded {
        /// The address inside.
        address: SocketAddr,
    },
}

impl SandboxNetworking {
    /// The name by which sandboxes with a network of their own reach this machine.
    pub fn host(self) -> Option<&'static str> {
        match self {
            Self::Shared | Self::Forwarded { .. } => None,
            Self::Separate { host, .. } => Some(host),
        }
    }
}

/// Looks up the address of this machine that sandboxes with a network of their own reach. `None` if it is unknown now.
pub type GatewayLookup = Arc<dyn Fn() -> BoxFuture<'static, Option<IpAddr>> + Send + Sync>;

/// An open backend.
#[derive(Clone)]
pub struct SandboxPorts {
    /// Prepares starts, and says whether they can work.
    pub backend: Arc<dyn SandboxBackend>,
    /// Starts and ends sandboxes.
    pub lifecycle: Arc<dyn SandboxLifecycle>,
    /// Reads logs and resolves paths.
    pub reader: Arc<dyn SandboxReader>,
    /// Proves which ports belong to its sandboxes.
    pub endpoints: Arc<dyn EndpointGuard>,
    /// Its templates, the default first.
    pub specs: SpecList,
    /// For sandboxes with a network of their own on this machine.
    pub gateway: Option<GatewayLookup>,
    /// For sandboxes whose callbacks the backend forwards: the service sets the address of its listener for callbacks.
    pub callbacks: Option<Arc<OnceLock<SocketAddr>>>,
    /// For sandboxes whose connections the backend hands to the service.
    pub egress: Option<EgressRoute>,
}

/// Templates that do not change while the service runs.
#[derive(Debug, Clone)]
pub struct SpecList(pub Arc<[SandboxSpec]>);

#[async_trait]
impl SandboxSpecCatalog for SpecList {
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError> {
        Ok(Arc::clone(&self.0))
    }
}

/// What [`ConfiguredBackend::examine`] found out for the check of callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackCheck {
    /// The result of the [`GatewayLookup`].
    pub gateway: Option<IpAddr>,
}

/// Concurrent boots of agent servers (`sandbox.parallel_starts`). `None`: as many as [`BackendFeatures::parallel_starts`] says.
pub fn parallel_starts(reader: &SettingReader<'_>) -> Option<usize> {
    let number = reader.number("sandbox.parallel_starts", 0..=1000);
    (number > 0).then_some(number)
}

/// An amount of whole US dollars, from this setting. `None`: no limit.
pub fn budget(reader: &SettingReader<'_>, key: &str) -> Option<NanoUsd> {
    let dollars: Option<u64> = reader.count_limit(key, 1_000_000);
    dollars.map(|dollars| NanoUsd::new(dollars.saturating_mul(1_000_000_000)))
}

/// Concurrent boots on this machine: each keeps a core busy.
pub fn starts_of_this_machine() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// The interval of measurements of disk usage, from this setting.
pub fn disk_check(reader: &SettingReader<'_>, key: &str) -> Duration {
    let interval = reader.duration(key);
    if interval < Duration::from_secs(1) {
        reader.problem(key, "must be 1s or more");
    }
    interval
}

/// Whether a URL names the machine that uses it.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}
