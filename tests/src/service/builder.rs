//! What a service is started with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Service;
use crate::agent_server::{Version, built, variable_of};
use crate::stub::Stub;

/// Configuration of a [`Service`] before its first start.
#[derive(Debug, Clone)]
pub struct Builder {
    variables: BTreeMap<String, String>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let mut builder = Self {
            variables: BTreeMap::new(),
        };
        builder.set("WORKSPACE_SANDBOX__BACKEND", "process");
        builder.set(
            "WORKSPACE_LOG__LEVEL",
            "info,application=debug,sandbox_process=debug",
        );
        // A start without an agent server must fail fast instead of installing one.
        builder.set("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", "/bin/false");
        builder
    }

    /// Runs this real agent server in sandboxes.
    #[must_use]
    pub fn agent_server(self, version: Version) -> Self {
        let command = version.command();
        self.env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", &command)
    }

    /// Runs the stub in sandboxes.
    #[must_use]
    pub fn stub(self, stub: &Stub) -> Self {
        self.env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", &stub.command())
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
        command.envs(&self.variables);
        command
    }
}
