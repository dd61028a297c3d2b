//! `SandboxWorkspace`: commands and files through the agent server.

use async_trait::async_trait;
use domain::agent::{AgentEndpoint, AgentError};
use domain::workspace::{SandboxWorkspace, ShellCommand, ShellOutcome, Skill};
use secrecy::SecretString;
use serde_json::Value;

use crate::runtime::HttpAgentRuntime;

#[async_trait]
impl SandboxWorkspace for HttpAgentRuntime {
    async fn run(&self, _: &AgentEndpoint, _: &ShellCommand) -> Result<ShellOutcome, AgentError> {
        Err(AgentError::NotFound)
    }
    async fn write(&self, _: &AgentEndpoint, _: &str, _: &SecretString) -> Result<(), AgentError> {
        Err(AgentError::NotFound)
    }
    async fn read(
        &self,
        _: &AgentEndpoint,
        _: &str,
        _: usize,
    ) -> Result<Option<String>, AgentError> {
        Err(AgentError::NotFound)
    }
    async fn skills(&self, _: &AgentEndpoint, _: &str) -> Result<Vec<Skill>, AgentError> {
        Ok(Vec::new())
    }
    async fn hooks(&self, _: &AgentEndpoint, _: &str) -> Result<Option<Value>, AgentError> {
        Ok(None)
    }
}
