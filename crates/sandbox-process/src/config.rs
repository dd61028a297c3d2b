//! Configuration of the process backend.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use domain::agent::spending::NanoUsd;
use domain::id::HostId;
use secrecy::SecretString;

use crate::confinement::Confinement;
use crate::confinement::plan::NetworkPolicy;
use crate::files::layout;
use crate::fork_server::ForkServerMode;
use crate::processes::launcher::Launcher;
use crate::provision::{Config as ProvisionConfig, Provisioner};

/// The source of the agent server.
#[derive(Debug, Clone)]
pub enum AgentServerSource {
    /// The operator's command, to which `--host` and `--port` are appended. It must not contain secrets, because
    /// every user of the machine can read it.
    Command(Vec<OsString>),
    /// Installed by the service on first use.
    Provision(Provisioner),
}

impl AgentServerSource {
    /// A program that the service installs on first use.
    ///
    /// # Errors
    /// The version cannot be one, or the data directory is not absolute.
    pub fn installed(config: ProvisionConfig) -> anyhow::Result<Self> {
        let name = config.program.name();
        let provisioner = Provisioner::new(config);
        let provisioner = provisioner.with_context(|| format!("cannot install {name}"))?;
        Ok(Self::Provision(provisioner))
    }
}

/// Configuration of [`ProcessSandboxes`](crate::ProcessSandboxes).
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// The service's data directory; it contains `sandboxes/<id>`.
    pub data_dir: PathBuf,
    /// A short path for sockets (tmux) and temporary files, with one folder per sandbox. Created with mode 0700; refused if
    /// it belongs to another user.
    pub runtime_dir: PathBuf,
    /// The installation. It is part of the processes' marker, so that two services on one machine do not touch each other's
    /// sandboxes.
    pub instance: HostId,
    /// The agent server of the sandboxes.
    pub agent_server: AgentServerSource,
    /// How sandboxes are confined. `None`: they run as the service does, see everything that it sees, and must be trusted.
    pub confinement: Option<Confinement>,
    /// Whether confined agent servers that the service has installed are forked.
    pub fork_server: ForkServerMode,
    /// The launcher that gives a sandbox its own session.
    pub launcher: Launcher,
    /// `PATH` in sandboxes, after the agent server's own folder.
    pub path: String,
    /// Additional variables. They never replace what the service sets.
    pub extra_env: BTreeMap<String, SecretString>,
    /// Time for a stopped agent server to deliver its last events.
    pub grace: Duration,
    /// Longest wait for killed processes to disappear.
    pub kill_timeout: Duration,
    /// Longest wait for other operations on the same sandbox.
    pub queue_timeout: Duration,
    /// Longest wait for a start permit. The starts of a burst wait for each other, each up to `boot_permit_timeout`.
    pub start_queue_timeout: Duration,
    /// Longest time that a start holds its permit while the agent server does not answer.
    pub boot_permit_timeout: Duration,
    /// Concurrent starts. Each costs some seconds of processor time, so more of them slow down all.
    pub parallel_starts: usize,
    /// Size from which a log file is truncated to its end.
    pub log_bytes: u64,
    /// Bytes on disk of one sandbox. A sandbox that uses more is stopped; its files stay.
    pub disk: Option<u64>,
    /// Interval of measurements of these bytes.
    pub disk_interval: Duration,
    /// Idle time after which a RUNNING sandbox is paused.
    pub idle_stop: Option<Duration>,
    /// Time after which a sandbox is deleted.
    pub lifetime: Option<Duration>,
    /// What a conversation may spend on models.
    pub conversation_budget: Option<NanoUsd>,
}

impl ProcessConfig {
    /// What sandboxes reach. Without walls, what the machine reaches.
    pub(crate) fn network(&self) -> NetworkPolicy {
        let confinement = self.confinement.as_ref();
        confinement.map_or(NetworkPolicy::Open, |it| it.network)
    }

    /// Whether programs of sandboxes use the service's forward proxy.
    pub(crate) fn has_proxy(&self) -> bool {
        let confinement = self.confinement.as_ref();
        confinement.is_some_and(|it| it.egress.is_some())
    }

    /// The defaults for an installation in `data_dir`. Sockets are in its folder `run` if that path is short enough,
    /// otherwise in `/tmp/agent-workspace-<uid>`.
    pub fn new(
        data_dir: impl Into<PathBuf>,
        instance: HostId,
        agent_server: AgentServerSource,
    ) -> Self {
        let data_dir = data_dir.into();
        let in_data_dir = data_dir.join("run");
        let runtime_dir = if layout::fits(&in_data_dir) {
            in_data_dir
        } else {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/tmp/agent-workspace-{uid}"))
        };
        Self {
            data_dir,
            runtime_dir,
            instance,
            agent_server,
            confinement: None,
            fork_server: ForkServerMode::default(),
            launcher: Launcher::default(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            extra_env: BTreeMap::new(),
            grace: Duration::from_secs(10),
            kill_timeout: Duration::from_secs(10),
            queue_timeout: Duration::from_secs(120),
            start_queue_timeout: Duration::from_secs(60 * 60),
            boot_permit_timeout: Duration::from_secs(60),
            parallel_starts: 2,
            log_bytes: 20 * 1024 * 1024,
            disk: None,
            disk_interval: Duration::from_secs(60),
            idle_stop: None,
            lifetime: None,
            conversation_budget: None,
        }
    }
}
