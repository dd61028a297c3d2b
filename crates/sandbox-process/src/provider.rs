//! The backend `process` of the service.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use domain::agent::spending::NanoUsd;
use domain::clock::{Clock as _, SystemClock};
use domain::sandbox::SingleUserRule;
use ipnet::Ipv4Net;
use sandbox_provider::{
    BackendFeatures, CallbackCheck, ConfiguredBackend, DoctorReport, EgressPolicy, EgressRoute,
    EgressSlot, Installation, SandboxNetworking, SandboxPorts, SandboxProvider, budget,
    is_proxy_variable, reachable_network,
};
use settings::{Redaction, SettingReader, SettingSection};

use crate::backend::NAME;
use crate::config::{AgentServerSource, ProcessConfig};
use crate::confinement::Confinement;
use crate::confinement::plan::{CALLBACK_ADDRESS, CALLBACK_PORT, NetworkPolicy};
use crate::confinement::walls::ProcessLimits;
use crate::fork_server::ForkServerMode;
use crate::processes::launcher::{self, Launcher};
use crate::provision::{self, InstallEnvironment, PythonProgram};
use crate::{ProcessSandboxes, specs};
use crate::{confinement, environment};

/// The network of each confined sandbox.
const SLIRP4NETNS: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 2, 0), 24);

const SINGLE_USER: SingleUserRule = SingleUserRule {
    reason: "Sandboxes run under one operating-system account, so they are not isolated from each other",
    advice: "Confine sandboxes (WORKSPACE_PROCESS__ISOLATION=auto), run them in containers (WORKSPACE_SANDBOX__BACKEND=docker), or accept that users can read each other's files \
             and keys (WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS=true).",
};

/// Registers processes of this machine.
#[derive(Debug)]
pub struct ProcessProvider;

impl SandboxProvider for ProcessProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> SettingSection {
        SettingSection {
            redacted: &[
                ("sandbox.index_url", Redaction::Url),
                ("sandbox.proxy", Redaction::Url),
            ],
            ..SettingSection::default()
        }
    }

    fn configure(&self, reader: &SettingReader<'_>) -> Arc<dyn ConfiguredBackend> {
        Arc::new(ConfiguredProcess::read(reader))
    }

    /// Releases that recorded no backend had this one.
    fn has_sandboxes(&self, data_dir: &Path) -> bool {
        std::fs::read_dir(data_dir.join("sandboxes"))
            .is_ok_and(|mut entries| entries.next().is_some())
    }

    fn run_helper(&self, arguments: &[OsString]) -> Option<io::Error> {
        let (name, rest) = arguments.split_first()?;
        if name == launcher::SUBCOMMAND {
            return Some(launcher::main(rest.iter().cloned()));
        }
        confinement::run_helper(arguments)
    }
}

#[derive(Debug)]
pub(crate) struct ConfiguredProcess {
    /// Whether several users may have sandboxes, although these are not isolated.
    allow_multiple_users: bool,
    /// Program and arguments of the agent server; `None`: the provisioned one.
    command: Option<Vec<String>>,
    /// What to install, without what only the installation knows.
    provision: provision::Config,
    /// `PATH` in sandboxes; `None`: the service's own.
    path: Option<String>,
    env: BTreeMap<String, String>,
    fork_server: ForkServerMode,
    parallel_starts: Option<usize>,
    grace: Duration,
    boot_permit_timeout: Duration,
    disk: Option<u64>,
    disk_interval: Duration,
    idle_stop: Option<Duration>,
    lifetime: Option<Duration>,
    conversation_budget: Option<NanoUsd>,
    /// Whether sandboxes are confined.
    pub(crate) is_confined: bool,
    /// What confined sandboxes reach.
    pub(crate) network: NetworkPolicy,
    /// Private networks and addresses of this machine that they reach.
    reachable_networks: Vec<Ipv4Net>,
    /// What confined sandboxes may read beside the system and the agent server.
    readable_paths: Vec<PathBuf>,
    /// What they may change beside their own files.
    writable_paths: Vec<PathBuf>,
    /// The service's listener for the callbacks of confined sandboxes.
    callbacks: Arc<OnceLock<SocketAddr>>,
    /// The service's forward proxy.
    egress: EgressSlot,
    sends_secrets: bool,
    /// Limits of confined sandboxes.
    pub(crate) limits: ProcessLimits,
}

/// What to install of the agent server.
fn provisioned(reader: &SettingReader<'_>) -> provision::Config {
    let defaults = provision::Config::new(
        PythonProgram::AgentServer,
        "",
        InstallEnvironment::default(),
    );
    let version = reader.optional_parsed(
        "sandbox.agent_server_version",
        "a version, e.g. 1.58.0",
        version,
    );
    provision::Config {
        version: version.unwrap_or(defaults.version),
        python: reader.optional_path("sandbox.python"),
        index_url: reader.secret("sandbox.index_url"),
        proxy: reader.secret("sandbox.proxy"),
        wheels: reader.optional_path("sandbox.wheel_dir"),
        ..defaults
    }
}

impl ConfiguredProcess {
    fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            allow_multiple_users: reader.switch("process.allow_multiple_users"),
            command: reader.words(
                "sandbox.agent_server_command",
                "a command, quoted as for a shell",
            ),
            provision: provisioned(reader),
            path: reader.optional("sandbox.path"),
            env: reader.assignments("sandbox.env"),
            fork_server: reader.choice(
                "process.fork_server",
                &[
                    ("auto", ForkServerMode::Auto),
                    ("on", ForkServerMode::On),
                    ("off", ForkServerMode::Off),
                ],
            ),
            parallel_starts: sandbox_provider::parallel_starts(reader),
            grace: reader.duration("sandbox.stop_grace"),
            boot_permit_timeout: reader.deadline("start.sandbox_deadline"),
            disk: reader.size_limit("process.disk"),
            disk_interval: sandbox_provider::disk_check(reader, "process.disk_check"),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
            conversation_budget: budget(reader, "sandbox.conversation_budget"),
            is_confined: reader.choice(
                "process.isolation",
                &[("auto", true), ("confined", true), ("none", false)],
            ),
            network: network(reader),
            reachable_networks: reader.parsed_list(
                "process.reachable_networks",
                "IPv4 networks or addresses, e.g. 10.20.0.0/16, outside 127.0.0.0/8 and 10.0.2.0/24, which each sandbox has for \
                 itself: let a program that listens at 127.0.0.1 listen at an address of the machine",
                |text| reachable_network(text, &[SLIRP4NETNS]),
            ),
            readable_paths: absolute_paths(reader, "process.readable_paths"),
            writable_paths: absolute_paths(reader, "process.writable_paths"),
            callbacks: Arc::default(),
            egress: EgressSlot::default(),
            sends_secrets: sandbox_provider::sends_secrets(reader),
            limits: ProcessLimits::read(reader),
        }
    }

    fn config(&self, installation: &Installation<'_>) -> anyhow::Result<ProcessConfig> {
        let source = self.agent_server(installation)?;
        ensure!(
            environment::settings_are_readable(&self.env),
            "sandbox.env: the variable OH must hold a JSON object, the agent server's settings by their names"
        );
        let env = self.env.clone().into_iter();
        let defaults = ProcessConfig::new(installation.data_dir, installation.host.clone(), source);
        let confinement = self.is_confined.then(|| Confinement {
            search_path: self
                .path(installation)
                .unwrap_or_else(|| defaults.path.clone()),
            readable_paths: self.readable_paths.clone(),
            writable_paths: self.writable_paths.clone(),
            limits: self.limits,
            network: self.network,
            reachable_networks: self.reachable_networks.clone(),
            callbacks: Arc::clone(&self.callbacks),
            egress: self.has_proxy().then(|| Arc::clone(&self.egress)),
        });
        let data_dir = installation.data_dir;
        let command = self.command.iter().flatten().map(OsString::from);
        let command: Vec<_> = command.collect();
        if let Some(shown) = confinement
            .as_ref()
            .and_then(|it| it.shown_ancestor(data_dir, &command))
        {
            bail!(
                "confined sandboxes see {}, so the data directory {} must not be below it: set WORKSPACE_DATA_DIR to a \
                 directory outside, for example /var/lib/agent-workspace",
                shown.display(),
                data_dir.display()
            );
        }
        Ok(ProcessConfig {
            confinement,
            launcher: Launcher::ThisBinary,
            fork_server: self.fork_server,
            path: self.path(installation).unwrap_or(defaults.path),
            extra_env: env.map(|(name, value)| (name, value.into())).collect(),
            grace: self.grace,
            boot_permit_timeout: self.boot_permit_timeout,
            parallel_starts: self
                .parallel_starts
                .unwrap_or_else(sandbox_provider::starts_of_this_machine),
            disk: self.disk,
            disk_interval: self.disk_interval,
            idle_stop: self.idle_stop,
            lifetime: self.lifetime,
            conversation_budget: self.conversation_budget,
            ..defaults
        })
    }

    /// Whether programs of sandboxes use the service's forward proxy.
    fn has_proxy(&self) -> bool {
        let may_use = match self.network {
            // Programs may reach nothing but by a proxy of the operator.
            NetworkPolicy::Open => {
                self.sends_secrets && !self.env.keys().any(|it| is_proxy_variable(it))
            }
            NetworkPolicy::Proxy => true,
            NetworkPolicy::None => false,
        };
        self.is_confined && may_use
    }

    pub(crate) fn path(&self, installation: &Installation<'_>) -> Option<String> {
        let own = || settings::variable(installation.variables, "PATH")?.to_str();
        let path = self.path.as_deref().or_else(own);
        path.map(str::to_owned)
    }

    pub(crate) fn agent_server(
        &self,
        installation: &Installation<'_>,
    ) -> anyhow::Result<AgentServerSource> {
        if let Some(words) = &self.command {
            let words = words.iter().map(OsString::from);
            return Ok(AgentServerSource::Command(words.collect()));
        }
        let config = provision::Config {
            data_dir: installation.data_dir.to_owned(),
            environment: InstallEnvironment::pick(installation.variables.iter().cloned()),
            ..self.provision.clone()
        };
        AgentServerSource::installed(config)
    }
}

#[async_trait]
impl ConfiguredBackend for ConfiguredProcess {
    fn features(&self) -> BackendFeatures {
        BackendFeatures {
            name: NAME,
            noun: if self.is_confined {
                "confined processes"
            } else {
                "processes"
            },
            is_isolated: self.is_confined,
            single_user: (!self.allow_multiple_users && !self.is_confined).then_some(SINGLE_USER),
            enforces_egress: self.is_confined,
            can_share_host: false,
            // They use the memory of a machine that may be a desktop.
            warm: 0,
            parallel_starts: sandbox_provider::starts_of_this_machine(),
            network: if self.is_confined {
                SandboxNetworking::Forwarded {
                    address: (CALLBACK_ADDRESS, CALLBACK_PORT).into(),
                }
            } else {
                SandboxNetworking::Shared
            },
        }
    }

    async fn probe(&self, _: &Installation<'_>) -> Result<&'static str, String> {
        Ok("processes need nothing else")
    }

    async fn open(&self, installation: &Installation<'_>) -> anyhow::Result<SandboxPorts> {
        let config = self.config(installation)?;
        let specs = specs(&config, SystemClock.now());
        let backend = ProcessSandboxes::new(config)
            .await
            .context("cannot use process sandboxes")?;
        let backend = Arc::new(backend);
        let route = || EgressRoute::new(&self.egress, &self.reachable_networks);
        Ok(SandboxPorts {
            backend: Arc::clone(&backend) as _,
            lifecycle: Arc::clone(&backend) as _,
            reader: Arc::clone(&backend) as _,
            endpoints: backend,
            specs,
            gateway: None,
            callbacks: self.is_confined.then(|| Arc::clone(&self.callbacks)),
            egress: self.has_proxy().then(route),
        })
    }

    async fn examine(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) -> Option<CallbackCheck> {
        self.examine_agent_server(installation, report).await;
        self.examine_walls(installation, report).await;
        Some(CallbackCheck { gateway: None })
    }

    async fn prepare(
        &self,
        installation: &Installation<'_>,
    ) -> Option<anyhow::Result<Vec<OsString>>> {
        Some(match self.agent_server(installation) {
            Ok(AgentServerSource::Command(words)) => Ok(words),
            Ok(AgentServerSource::Provision(provisioner)) => {
                let installed = provisioner.ensure().await;
                installed.map(|server| server.command()).map_err(Into::into)
            }
            Err(error) => Err(error),
        })
    }
}

/// The narrower of `process.network` and `egress.policy`.
fn network(reader: &SettingReader<'_>) -> NetworkPolicy {
    let own = reader.choice(
        "process.network",
        &[("open", NetworkPolicy::Open), ("none", NetworkPolicy::None)],
    );
    match EgressPolicy::read(reader) {
        EgressPolicy::Open => own,
        EgressPolicy::AllowList if own == NetworkPolicy::Open => NetworkPolicy::Proxy,
        EgressPolicy::AllowList | EgressPolicy::None => NetworkPolicy::None,
    }
}

fn absolute_paths(reader: &SettingReader<'_>, key: &str) -> Vec<PathBuf> {
    reader.parsed_list(key, "absolute paths", |text| {
        Some(PathBuf::from(text)).filter(|path| path.is_absolute())
    })
}

/// The version becomes part of a requirement (`name==VERSION`) and of a folder's name.
fn version(text: &str) -> Option<String> {
    let digit_first = text.starts_with(|c: char| c.is_ascii_digit());
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'+');
    (digit_first && plain && text.len() <= 64).then(|| text.to_owned())
}
