//! The single template of this backend.

use std::sync::Arc;

use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::SandboxSpec;
use sandbox_provider::{FIXED_VARIABLES, SpecList};

use crate::config::{AgentServerSource, ProcessConfig};

/// The single template: the configured agent server. `now` becomes its creation time in the API.
#[expect(
    clippy::missing_panics_doc,
    reason = "the name is made of checked parts"
)]
pub fn specs(config: &ProcessConfig, now: Timestamp) -> SpecList {
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
    let initial_env = FIXED_VARIABLES
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    SpecList(Arc::new([SandboxSpec {
        id: SpecId::parse(name).expect("a prefix and a checked version are visible characters"),
        command: Some(command),
        created_at: now,
        initial_env: initial_env.collect(),
        // Relative to the sandbox's directory; a started sandbox reports its absolute workspace.
        working_dir: "workspace".to_owned(),
        idle_stop: config.idle_stop,
        lifetime: config.lifetime,
        egress: None,
        conversation_budget: config.conversation_budget,
    }]))
}
