//! Work in a sandbox before a conversation begins: commands and files, through its agent server.

use async_trait::async_trait;
use secrecy::SecretString;
use std::time::Duration;

use crate::agent::{AgentEndpoint, AgentError};

/// A command for the sandbox's shell.
///
/// The agent server keeps the text of commands and what they print in its own log, which the agent can read: no secret may
/// be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// For `bash -c`.
    pub script: String,
    /// Absolute directory; `None` is the agent server's own.
    pub directory: Option<String>,
    /// The command is ended after so long.
    pub deadline: Duration,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOutcome {
    /// Exit code; `None` if it was ended for its deadline.
    pub exit_code: Option<i32>,
    /// The end of what it printed on both streams, at most 4 KiB, control characters removed.
    pub output: String,
}

impl ShellOutcome {
    /// Whether it ended by itself with 0.
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// A skill as an agent server reads it from a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSkill {
    /// Its name.
    pub name: String,
    /// `repo`, `knowledge` or `agentskills`.
    pub kind: String,
    /// The text.
    pub content: String,
    /// Words that call it up.
    pub triggers: Vec<String>,
}

/// The inside of a sandbox. Every call has a deadline (the command's own, and a little more for the way) and reads a bounded
/// answer.
#[async_trait]
pub trait SandboxWorkspace: Send + Sync + 'static {
    /// Runs a command and waits for its end.
    async fn run(
        &self,
        at: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<ShellOutcome, AgentError>;
    /// Writes a file (parents are made), replacing what is there. Its content may be secret: it is in no log.
    async fn write(
        &self,
        at: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError>;
    /// Reads a text file of at most `limit` bytes; `None` if there is none, or it is larger or no UTF-8.
    async fn read(
        &self,
        at: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError>;
    /// Files below a directory, relative to it and in order, at most `limit` of them (any, if there are more), without those
    /// of git, and of packages and what is built; none if there is no such directory.
    async fn list(
        &self,
        at: &AgentEndpoint,
        directory: &str,
        limit: usize,
    ) -> Result<Vec<String>, AgentError>;
    /// Files of the repository at `path` that have changed (against `reference`, where given), as the agent server says it.
    async fn changes(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<serde_json::Value, AgentError>;
    /// A changed file before and after, as the agent server says it.
    async fn diff(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<serde_json::Value, AgentError>;
    /// Skills of a project directory.
    async fn skills(&self, at: &AgentEndpoint, project: &str) -> Result<Vec<ProjectSkill>, AgentError>;
    /// The agent hooks (`.openhands/hooks.json`) of a project directory, in the form that a launch takes; `None` without any.
    async fn hooks(
        &self,
        at: &AgentEndpoint,
        project: &str,
    ) -> Result<Option<serde_json::Value>, AgentError>;
}
