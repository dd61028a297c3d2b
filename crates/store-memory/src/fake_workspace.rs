//! The inside of a sandbox that a test scripts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::agent::{AgentEndpoint, AgentError};
use domain::workspace::{SandboxWorkspace, ShellCommand, ShellOutcome, Skill};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Commands succeed and are remembered; files are kept in memory.
#[derive(Debug, Default)]
pub struct FakeWorkspace {
    commands: Mutex<Vec<ShellCommand>>,
    files: Mutex<BTreeMap<String, String>>,
}

impl FakeWorkspace {
    /// What was run so far.
    pub fn commands(&self) -> Vec<ShellCommand> {
        let commands = self.commands.lock();
        commands.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl SandboxWorkspace for FakeWorkspace {
    async fn run(
        &self,
        _: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<ShellOutcome, AgentError> {
        let commands = self.commands.lock();
        commands
            .unwrap_or_else(PoisonError::into_inner)
            .push(command.clone());
        Ok(ShellOutcome {
            exit_code: Some(0),
            output: String::new(),
        })
    }

    async fn write(
        &self,
        _: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(path.to_owned(), content.expose_secret().to_owned());
        Ok(())
    }

    async fn read(
        &self,
        _: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(files.get(path).filter(|text| text.len() <= limit).cloned())
    }

    async fn skills(&self, _: &AgentEndpoint, _: &str) -> Result<Vec<Skill>, AgentError> {
        Ok(Vec::new())
    }

    async fn hooks(&self, _: &AgentEndpoint, _: &str) -> Result<Option<Value>, AgentError> {
        Ok(None)
    }
}
