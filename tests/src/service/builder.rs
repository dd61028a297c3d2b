//! Configuration of a service.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{START_TIMEOUT, Service, access};
use crate::agent_server::{Version, built_program, installations, variable_of};
use crate::engine::{self, Engine};
use crate::machine_address;
use crate::postgres::Postgres;
use crate::proxy::ProxyKind;
use crate::scripted_llm::ScriptedLlm;
use crate::stub::Stub;
use crate::wait::within;

/// Any 32 bytes.
const MASTER_KEY: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
/// The variable with the key of the first user.
pub(super) const BOOTSTRAP_KEY: &str = "WORKSPACE_AUTH__BOOTSTRAP_KEY";
const FIRST_KEY: &str = "the-first-users-key-in-these-tests-0123456789";
const COMMAND: &str = "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND";

/// How a service runs sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandboxing {
    /// Confined processes.
    Process,
    /// Processes without isolation.
    UnconfinedProcess,
    /// Containers of this engine.
    Docker(Engine),
}

impl Sandboxing {
    /// Containers of the engine that the suites share.
    #[must_use]
    pub fn docker() -> Self {
        Self::Docker(Engine::shared())
    }

    /// Whether sandboxes use the service's forward proxy, so that they get placeholders of secrets with hosts.
    #[must_use]
    pub fn has_proxy(&self) -> bool {
        !matches!(self, Self::UnconfinedProcess)
    }

    /// Where a test's server listens for sandboxes, and the host name by which they reach it.
    #[must_use]
    pub fn server_address(&self) -> (Ipv4Addr, String) {
        let by_address = |address: Ipv4Addr| (address, address.to_string());
        match self {
            Self::Process => by_address(machine_address()),
            Self::UnconfinedProcess => by_address(Ipv4Addr::LOCALHOST),
            Self::Docker(_) => (Ipv4Addr::UNSPECIFIED, "host.docker.internal".to_owned()),
        }
    }

    /// Starts a scripted model that sandboxes can reach.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn model(&self) -> ScriptedLlm {
        let (address, mut host) = self.server_address();
        if let Self::Docker(_) = self {
            // The service calls it for the sandboxes.
            host = machine_address().to_string();
        }
        let started = ScriptedLlm::start_at(address, &host).await;
        started.expect("no port is free")
    }
}

/// The agent server in sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AgentServer {
    /// None: a start must fail instead of installing one.
    None,
    /// The command of an operator.
    Real(Version),
    /// The one that the service finds installed, which confined sandboxes fork.
    Installed(Version),
    /// The stub with this directory.
    Stub(PathBuf),
}

/// Configuration of a [`Service`] before its first start.
#[derive(Debug, Clone)]
pub struct Builder {
    sandboxing: Sandboxing,
    agent: AgentServer,
    variables: BTreeMap<String, String>,
    /// The parent of the service's directory.
    pub(super) parent: PathBuf,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            sandboxing: Sandboxing::Process,
            agent: AgentServer::None,
            variables: BTreeMap::new(),
            parent: std::env::temp_dir(),
        }
    }

    /// Puts the service's directory below this one. With the default, confined sandboxes share no `/tmp` with the service's
    /// requests for files.
    #[must_use]
    pub fn below(mut self, parent: &str) -> Self {
        self.parent = parent.into();
        self
    }

    /// Sets how sandboxes run; the default is confined processes.
    #[must_use]
    pub fn sandboxing(mut self, sandboxing: &Sandboxing) -> Self {
        self.sandboxing = sandboxing.clone();
        self
    }

    /// Runs this real agent server in sandboxes.
    #[must_use]
    pub fn agent_server(mut self, version: Version) -> Self {
        self.agent = AgentServer::Real(version);
        self
    }

    /// Gives the service an installation of this real agent server, as if it had installed it itself.
    #[must_use]
    pub fn installed_agent_server(mut self, version: Version) -> Self {
        self.agent = AgentServer::Installed(version);
        self
    }

    /// Stores everything in this database. All such services have one master key, and one key of the first user.
    #[must_use]
    pub fn postgres(self, server: &Postgres) -> Self {
        self.env("WORKSPACE_STORAGE__URL", &server.url())
            .env("WORKSPACE_SECRETS__MASTER_KEY", MASTER_KEY)
            .env(BOOTSTRAP_KEY, FIRST_KEY)
    }

    /// Runs the stub in sandboxes.
    #[must_use]
    pub fn stub(mut self, stub: &Stub) -> Self {
        self.agent = AgentServer::Stub(stub.dir().to_owned());
        self
    }

    /// Installs what the service must find in its data directory.
    pub(super) fn install(&self, data_dir: &Path) {
        let is_process = !matches!(self.sandboxing, Sandboxing::Docker(_));
        if is_process && matches!(self.agent, AgentServer::Installed(_)) {
            let mut private = DirBuilder::new();
            let created = private.mode(0o700).create(data_dir);
            created.expect("cannot create the data directory");
            let linked = symlink(installations(), data_dir.join("agent-server"));
            linked.expect("cannot link the installations of the agent server");
        }
    }

    pub(super) fn configured_sandboxing(&self) -> &Sandboxing {
        &self.sandboxing
    }

    /// Default variables, which those of a test override.
    fn defaults(&self) -> Vec<(&'static str, String)> {
        let log = "info,application=debug,sandbox_process=debug,sandbox_docker=debug";
        let mut all = vec![
            ("WORKSPACE_LOG__LEVEL", log.to_owned()),
            // Suites and benchmarks send many requests with one key.
            ("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "0".to_owned()),
            // The agent servers of several tests boot at once, also on a busy machine.
            ("WORKSPACE_START__SANDBOX_DEADLINE", "8m".to_owned()),
            // Suites count sandboxes. Suites about warm sandboxes set another number.
            ("WORKSPACE_SANDBOX__WARM", "0".to_owned()),
            // Invented tokens of suites stay on this machine. Suites about their check have a provider.
            ("WORKSPACE_GIT__VERIFY_TOKENS", "false".to_owned()),
            // Nothing is downloaded at a start. The suite of the web application has a build.
            ("WORKSPACE_WEB__ENABLED", "off".to_owned()),
            // Nothing is installed by a question whether there are automations.
            ("WORKSPACE_AUTOMATIONS__ENABLED", "off".to_owned()),
        ];
        match &self.sandboxing {
            Sandboxing::Process | Sandboxing::UnconfinedProcess => {
                all.push(("WORKSPACE_SANDBOX__BACKEND", "process".to_owned()));
                all.extend(self.confinement());
                all.push(match &self.agent {
                    AgentServer::None => (COMMAND, "/bin/false".to_owned()),
                    AgentServer::Real(version) => (COMMAND, version.command()),
                    AgentServer::Installed(version) => (
                        "WORKSPACE_SANDBOX__AGENT_SERVER_VERSION",
                        version.to_string(),
                    ),
                    AgentServer::Stub(dir) => (COMMAND, Stub::command_in(dir)),
                });
            }
            Sandboxing::Docker(engine) => {
                all.push(("WORKSPACE_SANDBOX__BACKEND", "docker".to_owned()));
                if let Some(socket) = engine.socket() {
                    all.push(("WORKSPACE_DOCKER__SOCKET", socket.to_owned()));
                }
                let image = match &self.agent {
                    // No registry has this name.
                    AgentServer::None => "agent-workspace-test.invalid/none:1".to_owned(),
                    AgentServer::Real(version) | AgentServer::Installed(version) => {
                        engine::agent_server_image(*version)
                    }
                    AgentServer::Stub(_) => engine::stub_image(),
                };
                all.push(("WORKSPACE_DOCKER__IMAGE", image));
                all.extend(self.models());
                if let AgentServer::Stub(dir) = &self.agent {
                    let mount = format!("{}:{}", dir.display(), Stub::DIR_IN_CONTAINERS);
                    all.push(("WORKSPACE_DOCKER__MOUNTS", mount));
                }
            }
        }
        all
    }

    /// The scripted models, which the service calls for sandboxes.
    fn models(&self) -> Option<(&'static str, String)> {
        let name = "WORKSPACE_BROKER__ALLOW_PRIVATE_HOSTS";
        let is_open = self.variable(name).is_none();
        is_open.then(|| (name, machine_address().to_string()))
    }

    fn confinement(&self) -> Vec<(&'static str, String)> {
        if self.sandboxing == Sandboxing::UnconfinedProcess {
            return vec![
                ("WORKSPACE_PROCESS__ISOLATION", "none".to_owned()),
                // Suites have several users, whose processes are not isolated.
                ("WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS", "true".to_owned()),
            ];
        }
        let mut all = vec![("WORKSPACE_PROCESS__ISOLATION", "confined".to_owned())];
        let reachable = "WORKSPACE_PROCESS__REACHABLE_NETWORKS";
        if self.variable(reachable).is_none() {
            // Where the servers of tests listen.
            all.push((reachable, machine_address().to_string()));
            all.extend(self.models());
        }
        if let AgentServer::Stub(dir) = &self.agent {
            let dir = dir.display().to_string();
            all.push(("WORKSPACE_PROCESS__WRITABLE_PATHS", dir));
        }
        all
    }

    /// Sets a variable of the service's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.set_variable(name, value);
        self
    }

    /// Starts the service.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(self) -> Service {
        Service::launch(self).await
    }

    /// Starts a service that must fail, in the data directory `data`; returns its output.
    ///
    /// # Panics
    /// When it keeps running, or exits with success.
    pub async fn start_expecting_failure(self, data: &Path) -> String {
        let mut command = self.command();
        command.env("WORKSPACE_DATA_DIR", data).env("HOME", data);
        command.stdin(Stdio::null());
        let child = tokio::process::Command::from(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("cannot run the agent-workspace binary");
        let ended = Box::pin(child.wait_with_output());
        let output = within("the exit of the service", START_TIMEOUT, ended).await;
        let output = output.expect("cannot read the output");
        assert!(!output.status.success(), "the service exited with success");
        let output_text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&output_text).into_owned()
    }

    pub(super) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn set_agent_server(&mut self, version: Version) {
        self.agent = match &self.agent {
            AgentServer::Installed(_) => AgentServer::Installed(version),
            _ => AgentServer::Real(version),
        };
    }

    /// Fills `{port}` in variables: the service's port, which is known before its start.
    pub(super) fn fill_port(&mut self, port: u16) {
        for value in self.variables.values_mut() {
            *value = value.replace("{port}", &port.to_string());
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The kind of proxy in front. None for a test that sets a public URL or an address itself.
    pub(super) fn front_kind(&self) -> Option<ProxyKind> {
        let own_url = ["WORKSPACE_HTTP__PUBLIC_URL", "WORKSPACE_HTTP__BIND"];
        let is_set = own_url.iter().any(|name| self.variable(name).is_some());
        access::proxy_kind().filter(|_| !is_set)
    }

    /// The binary with a small environment, without the developer's own configuration.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(built_program("agent-workspace"));
        command.env_clear();
        // For finding programs, and for installing Python packages.
        for name in [
            "PATH",
            "PYENV_ROOT",
            "PIP_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "PIP_CERT",
            "PIP_FIND_LINKS",
            "SSL_CERT_FILE",
            "HTTPS_PROXY",
            "https_proxy",
            "NO_PROXY",
            "no_proxy",
        ] {
            if let Some(value) = variable_of(name) {
                command.env(name, value);
            }
        }
        command.envs(self.defaults());
        command.envs(&self.variables);
        command
    }
}
