//! The workspace of a sandbox: commands and files, through its agent server.

use async_trait::async_trait;
use secrecy::SecretString;
use std::time::Duration;

use crate::agent::{AgentEndpoint, AgentError};

/// A command for the sandbox's shell.
///
/// The agent server keeps the text and output of commands in its log, which the agent can read. Neither may contain a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// Argument of `bash -c`.
    pub script: String,
    /// Absolute directory; `None` means the agent server's working directory.
    pub directory: Option<String>,
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOutcome {
    /// Exit code; `None` if the command was killed at its timeout.
    pub exit_code: Option<i32>,
    /// The end of both output streams, at most 4 KiB, without control characters.
    pub output: String,
}

impl ShellOutcome {
    /// Whether the command exited with 0.
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// A skill that an agent server reads from a project directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSkill {
    pub name: String,
    /// `repo`, `knowledge` or `agentskills`.
    pub kind: String,
    pub content: String,
    /// Words that activate it.
    pub triggers: Vec<String>,
}

/// The inside of a sandbox. Every call has a deadline (for commands their own and some seconds) and limits the size of
/// responses.
#[async_trait]
pub trait SandboxWorkspace: Send + Sync + 'static {
    /// Runs a command and waits until it ends.
    async fn run(
        &self,
        at: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<ShellOutcome, AgentError>;
    /// Writes a file and creates its parent directories. The content may be secret and is never logged.
    async fn write(
        &self,
        at: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError>;
    /// Reads a text file of at most `limit` bytes; `None` if there is none, or it is larger or not UTF-8.
    async fn read(
        &self,
        at: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError>;
    /// At most `limit` files below a directory, relative to it, sorted by path; which ones is unspecified if there are
    /// more. Leaves out the files of git, of packages and of build outputs. Empty if the directory does not exist.
    async fn list(
        &self,
        at: &AgentEndpoint,
        directory: &str,
        limit: usize,
    ) -> Result<Vec<String>, AgentError>;
    /// The changed files of the repository at `path`, compared with `reference` if given, as the agent server reports
    /// them.
    async fn changes(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<serde_json::Value, AgentError>;
    /// A changed file before and after, as the agent server reports it.
    async fn diff(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<serde_json::Value, AgentError>;
    /// Skills of a project directory.
    async fn skills(
        &self,
        at: &AgentEndpoint,
        project: &str,
    ) -> Result<Vec<ProjectSkill>, AgentError>;
    /// The agent hooks (`.openhands/hooks.json`) of a project directory, in the form of
    /// [`LaunchRequest::hooks`](crate::agent::LaunchRequest::hooks); `None` without any.
    async fn hooks(
        &self,
        at: &AgentEndpoint,
        project: &str,
    ) -> Result<Option<serde_json::Value>, AgentError>;
}
