//! Checks of `doctor`: the agent server and the walls around sandboxes. Installs nothing.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use sandbox_provider::{DoctorReport, Installation};

use crate::config::AgentServerSource;
use crate::confinement::walls;
use crate::confinement::walls::limits::MachineLimits;
use crate::processes::programs::find_program;
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

    /// Tries each wall. A missing one is a problem if sandboxes are refused without it.
    pub(crate) async fn examine_walls(
        &self,
        installation: &Installation<'_>,
        report: &mut DoctorReport,
    ) {
        if !self.is_confined {
            let text = "none: agents can do whatever the service's account can; set WORKSPACE_PROCESS__ISOLATION=auto";
            return report.warn("isolation", text);
        }
        let path = self.path(installation).unwrap_or_default();
        let executable = Path::new("/proc/self/exe");
        let walls = walls::probe(installation.host, &path, self.network, executable);
        for wall in walls.await {
            let what = format!("wall: {}", wall.name);
            if wall.held {
                report.ok(&what, wall.detail);
                continue;
            }
            let text = format!("{}: {}", wall.detail, wall.remedy);
            if wall.is_required {
                report.problem(&what, text);
            } else {
                report.warn(&what, text);
            }
        }
        if let Err(cause) = self.limits.check(&MachineLimits::read()) {
            report.problem("limits", format!("{cause}: lower the setting"));
        }
    }

    /// Describes the agent server. The error says why there is none.
    async fn describe_agent_server(
        &self,
        installation: &Installation<'_>,
    ) -> anyhow::Result<String> {
        let path = self.path(installation).unwrap_or_default();
        self.agent_server(installation)?.describe(&path).await
    }
}

impl AgentServerSource {
    /// Says which program this is, without installing it.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn describe(&self, search_path: &str) -> anyhow::Result<String> {
        let provisioner = match self {
            Self::Provision(provisioner) => provisioner,
            Self::Command(words) => {
                let program = words.first().map(OsString::as_os_str).unwrap_or_default();
                let program = find_program(program, search_path).context("correct the command")?;
                return Ok(format!("configured command, {}", program.display()));
            }
        };
        let version = provisioner.version();
        if let Some(server) = provisioner.find().await {
            return Ok(format!(
                "{version} is installed in {}",
                server.root.display()
            ));
        }
        let python = provisioner.describe_python().await?;
        Ok(format!(
            "{version} is not installed yet; the first use installs it with {python}"
        ))
    }
}
