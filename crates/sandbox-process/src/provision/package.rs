//! The programs that are installed from Python packages.

use std::ffi::OsString;
use std::path::Path;

use super::boot;
use super::tested::{AGENT_SERVERS, AUTOMATIONS, TestedRelease};

/// Versions of libraries that the agent server's own metadata leaves open: with a later `litellm` or `fastmcp` the default
/// version does not resolve, or is untested.
const PINS: [&str; 3] = [
    "litellm==1.105.3",
    "fastmcp==3.4.10",
    // Programs of sandboxes use it: scripts of automations install their packages with it.
    "uv==0.13.9",
];

/// A program that is installed from Python packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonProgram {
    /// The agent server of sandboxes.
    AgentServer,
    /// The automations service.
    Automations,
}

impl PythonProgram {
    /// In texts for the operator.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AgentServer => "the agent server",
            Self::Automations => "the automations service",
        }
    }

    /// The folder of its installations in the data directory.
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Self::AgentServer => "agent-server",
            Self::Automations => "automations-server",
        }
    }

    /// The version to install by default.
    pub(super) const fn default_version(self) -> &'static str {
        match self {
            Self::AgentServer => "1.58.0",
            Self::Automations => "1.25.0",
        }
    }

    /// The setting of the version.
    pub(super) const fn version_setting(self) -> &'static str {
        match self {
            Self::AgentServer => "WORKSPACE_SANDBOX__AGENT_SERVER_VERSION",
            Self::Automations => "WORKSPACE_AUTOMATIONS__VERSION",
        }
    }

    /// The packages of a version.
    pub(super) fn requirements(self, version: &str) -> Vec<String> {
        let (packages, pins): (&[&str], &[&str]) = match self {
            Self::AgentServer => (
                &["openhands-agent-server", "openhands-sdk", "openhands-tools"],
                &PINS,
            ),
            Self::Automations => (&["openhands-automation"], &[]),
        };
        let packages = packages.iter().map(|name| format!("{name}=={version}"));
        let pins = pins.iter().map(|pin| (*pin).to_owned());
        packages.chain(pins).collect()
    }

    pub(super) const fn tested(self) -> &'static [TestedRelease] {
        match self {
            Self::AgentServer => &AGENT_SERVERS,
            Self::Automations => &AUTOMATIONS,
        }
    }

    /// What Python runs to check an installation.
    pub(super) const fn check(self) -> [&'static str; 3] {
        match self {
            Self::AgentServer => ["-m", "openhands.agent_server", "--help"],
            // Importing the application reads its settings, which only a start has.
            Self::Automations => ["-m", "uvicorn", "--help"],
        }
    }

    /// The arguments of Python that start it, without `--host` and `--port`.
    pub(super) fn arguments(self, root: &Path) -> Vec<OsString> {
        let otherwise: &[&str] = match self {
            Self::AgentServer => &["-m", "openhands.agent_server"],
            Self::Automations => &["-m", "uvicorn", "openhands.automation.app:app"],
        };
        boot::arguments(root, otherwise)
    }

    /// The start script.
    pub(super) const fn boot_script(self) -> &'static str {
        match self {
            Self::AgentServer => include_str!("boot.py"),
            Self::Automations => include_str!("boot_automations.py"),
        }
    }
}
