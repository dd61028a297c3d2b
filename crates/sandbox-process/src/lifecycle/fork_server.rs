//! Decides which sandboxes the fork server starts.

use std::ffi::OsString;
use std::path::PathBuf;

use domain::sandbox::SandboxError;
use tokio::time::timeout;

use crate::backend::ProcessInner;
use crate::config::AgentServerSource;
use crate::fork_server::{ForkServer, ForkServerMode, ForkServerTemplate};

impl ProcessInner {
    /// Starts the fork server of the installation that `command` starts, unless it runs or cannot be used.
    pub(crate) fn start_fork_server(&self, command: &[OsString]) -> Option<&ForkServer> {
        let confinement = self.config.confinement.as_ref()?;
        let is_used = self.config.fork_server != ForkServerMode::Off
            && matches!(self.config.agent_server, AgentServerSource::Provision(_));
        if !is_used {
            return None;
        }
        Some(self.fork_server.get_or_init(|| {
            let path = confinement.search_path.clone();
            let template = ForkServerTemplate::new(&self.config, command.to_vec(), path);
            ForkServer::start(&self.tasks, template)
        }))
    }

    /// The socket of the fork server, if one may create the agent server of `command`.
    pub(crate) async fn fork_server_socket(
        &self,
        command: &[OsString],
    ) -> Result<Option<PathBuf>, SandboxError> {
        let Some(server) = self.start_fork_server(command) else {
            return Ok(None);
        };
        if self.config.fork_server == ForkServerMode::Auto {
            return Ok(server.socket());
        }
        let ready = timeout(self.config.start_queue_timeout, server.ready_socket());
        ready.await.map_err(|_| SandboxError::TimedOut {
            what: "waiting for the fork server (process.fork_server=auto boots without it)",
        })
    }
}
