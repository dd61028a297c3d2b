//! Checks of `doctor`: the agent server. Installs nothing.

use std::ffi::OsString;

use anyhow::Context as _;
use sandbox_provider::{DoctorReport, Installation};

use crate::config::AgentServerSource;
use crate::lifecycle::start;
use crate::provider::ConfiguredProcess;

impl ConfiguredProcess {
    /// Reports which agent server new sandboxes get, or why there is none.
    pub(crate) async fn examine_agent_server(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) {
        let agent_server = self.describe_agent_server(installation).await;
        report.add("agent server", agent_server, Clone::clone);
    }

    /// Describes the agent server. The error says why there is none.
    async fn describe_agent_server(
        &self,
        installation: &Installation<'_>,
    ) -> anyhow::Result<String> {
        let provisioner = match self.agent_server(installation)? {
            AgentServerSource::Provision(provisioner) => provisioner,
            AgentServerSource::Command(words) => {
                let path = self.path(installation).unwrap_or_default();
                let program = words.first().map(OsString::as_os_str).unwrap_or_default();
                let program = start::find_program(program, &path)
                    .context("correct WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND")?;
                return Ok(format!("configured command, {}", program.display()));
            }
        };
        let version = provisioner.version().to_owned();
        if let Some(server) = provisioner.find().await {
            return Ok(format!(
                "{version} is installed in {}",
                server.root.display()
            ));
        }
        let python = provisioner.describe_python().await?;
        Ok(format!(
            "{version} is not installed yet; the first start installs it with {python}"
        ))
    }
}
