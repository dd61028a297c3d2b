//! What a service is started with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Service;
use crate::agent_server::{Version, built, variable_of};
use crate::engine::{self, Engine};
use crate::proxy;
use crate::scripted_llm::ScriptedLlm;
use crate::stub::Stub;

/// How a service runs sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandboxing {
    /// As local processes.
    Process,
    /// As containers of this engine.
    Docker(Engine),
}

impl Sandboxing {
    /// As containers of the engine that the suites share.
    #[must_use]
    pub fn docker() -> Self {
        Self::Docker(Engine::shared())
    }

    /// A scripted model that sandboxes reach.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn model(&self) -> ScriptedLlm {
        let started = match self {
            Self::Process => ScriptedLlm::start().await,
            Self::Docker(_) => ScriptedLlm::start_for_containers().await,
        };
        started.expect("a port is free")
    }
}

/// What runs in sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Agent {
    /// Nothing: a start must fail fast instead of installing something.
    None,
    Real(Version),
    /// The stub with this directory.
    Stub(PathBuf),
}

/// Configuration of a [`Service`] before its first start.
#[derive(Debug, Clone)]
pub struct Builder {
    sandboxing: Sandboxing,
    agent: Agent,
    variables: BTreeMap<String, String>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            sandboxing: Sandboxing::Process,
            agent: Agent::None,
            variables: BTreeMap::new(),
        }
    }

    /// Runs sandboxes this way; as processes unless told otherwise.
    #[must_use]
    pub fn sandboxing(mut self, sandboxing: &Sandboxing) -> Self {
        self.sandboxing = sandboxing.clone();
        self
    }

    /// Runs this real agent server in sandboxes.
    #[must_use]
    pub fn agent_server(mut self, version: Version) -> Self {
        self.agent = Agent::Real(version);
        self
    }

    /// Runs the stub in sandboxes.
    #[must_use]
    pub fn stub(mut self, stub: &Stub) -> Self {
        self.agent = Agent::Stub(stub.dir().to_owned());
        self
    }

    pub(super) fn sandboxing_of(&self) -> &Sandboxing {
        &self.sandboxing
    }

    /// What follows from how and what it runs; what a test sets itself wins.
    fn defaults(&self) -> Vec<(&'static str, String)> {
        let log = "info,application=debug,sandbox_process=debug,sandbox_docker=debug";
        let mut all = vec![
            ("WORKSPACE_LOG__LEVEL", log.to_owned()),
            // Suites and benchmarks are many users with one key.
            ("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "0".to_owned()),
            // Suites have several users, whose processes nothing isolates.
            ("WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS", "true".to_owned()),
            // Suites count sandboxes; those of warm ones ask for some.
            ("WORKSPACE_SANDBOX__WARM", "0".to_owned()),
        ];
        match &self.sandboxing {
            Sandboxing::Process => {
                all.push(("WORKSPACE_SANDBOX__BACKEND", "process".to_owned()));
                let command = match &self.agent {
                    Agent::None => "/bin/false".to_owned(),
                    Agent::Real(version) => version.command(),
                    Agent::Stub(dir) => Stub::command_in(dir),
                };
                all.push(("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", command));
            }
            Sandboxing::Docker(engine) => {
                all.push(("WORKSPACE_SANDBOX__BACKEND", "docker".to_owned()));
                if let Some(socket) = engine.socket() {
                    all.push(("WORKSPACE_DOCKER__SOCKET", socket.to_owned()));
                }
                let image = match &self.agent {
                    // No registry has this name.
                    Agent::None => "agent-workspace-test.invalid/none:1".to_owned(),
                    Agent::Real(version) => engine::agent_server_image(*version),
                    Agent::Stub(_) => engine::stub_image(),
                };
                all.push(("WORKSPACE_DOCKER__IMAGE", image));
                if let Agent::Stub(dir) = &self.agent {
                    let mount = format!("{}:{}", dir.display(), Stub::DIR_IN_CONTAINERS);
                    all.push(("WORKSPACE_DOCKER__MOUNTS", mount));
                }
            }
        }
        all
    }

    /// Sets a variable of the service's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(self) -> Service {
        Service::launch(self).await
    }

    /// Starts it in the data directory `data`, expecting that it ends by itself; returns what it said.
    ///
    /// # Panics
    /// When it runs on, or ends with success.
    pub async fn fails_to_start(self, data: &Path) -> String {
        let mut command = self.command();
        command.env("WORKSPACE_DATA_DIR", data).env("HOME", data);
        command.stdin(Stdio::null());
        let mut child = tokio::process::Command::from(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map(tokio::process::Child::wait_with_output)
            .map(Box::pin)
            .expect("the binary can be run");
        let output = tokio::time::timeout(Duration::from_secs(30), &mut child).await;
        let output = output
            .expect("a service that cannot run ends")
            .expect("its output can be read");
        assert!(!output.status.success(), "it ended with success");
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn sets(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Which proxy is in front: the one that the person who runs the suites wishes. Not where a test has a public URL or an
    /// address of its own, and with it a way in of its own.
    pub(super) fn front(&self) -> Option<proxy::Kind> {
        let own = ["WORKSPACE_HTTP__PUBLIC_URL", "WORKSPACE_HTTP__BIND"];
        if own.iter().any(|name| self.sets(name).is_some()) {
            return None;
        }
        variable_of("ACCEPTANCE_BEHIND").map(|name| proxy::Kind::named(&name))
    }

    /// The binary with a small environment: nothing of the developer's own configures it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(built("agent-workspace"));
        command.env_clear();
        // Where programs are, and what a package installation needs to reach its index.
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
