//! The single template of this backend.

use std::sync::Arc;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};

use crate::config::{AgentServerSource, ProcessConfig};
use crate::environment::FIXED_VARIABLES;

/// The catalogue with the single template: the configured agent server.
#[derive(Debug, Clone)]
pub struct ProcessSpecs {
    specs: Arc<[SandboxSpec]>,
}

impl ProcessSpecs {
    /// `now` becomes the creation time in the API.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the name is made of checked parts"
    )]
    pub fn new(config: &ProcessConfig, now: Timestamp) -> Self {
        let (name, command) = match &config.agent_server {
            AgentServerSource::Provision(provisioner) => {
                let version = provisioner.version();
                let command = ["python", "-m", "openhands.agent_server"].map(str::to_owned);
                (
                    format!("process:openhands-agent-server-{version}"),
                    command.to_vec(),
                )
            }
            AgentServerSource::Command(command) => {
                let words = command
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned());
                ("process:agent-server-command".to_owned(), words.collect())
            }
        };
        let id =
            SpecId::parse(name).expect("a prefix and a checked version are visible characters");
        let initial_env = FIXED_VARIABLES
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self {
            specs: Arc::new([SandboxSpec {
                id,
                command: Some(command),
                created_at: now,
                initial_env,
                // Relative to the sandbox's directory; a started sandbox reports its absolute workspace.
                working_dir: "workspace".to_owned(),
                idle_stop: config.idle_stop,
                lifetime: config.lifetime,
            }]),
        }
    }
}

#[async_trait]
impl SandboxSpecCatalog for ProcessSpecs {
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError> {
        Ok(Arc::clone(&self.specs))
    }
}
