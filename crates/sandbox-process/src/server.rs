//! The agent server's command: configured, or the result of one shared installation.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::error::chain;
use domain::sandbox::SandboxError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::runtime::Handle;

use crate::config::AgentServerSource;
use crate::errors;
use crate::provision::{InstalledProgram, ProvisionError, Provisioner};

type SharedInstallation = Shared<BoxFuture<'static, Result<InstalledProgram, Arc<ProvisionError>>>>;

#[derive(Debug)]
pub(crate) struct AgentServerProvider {
    source: AgentServerSource,
    /// The running or finished installation. It is independent of requests: a caller that gives up does not stop it.
    installation: Mutex<Option<SharedInstallation>>,
}

impl AgentServerProvider {
    pub(crate) fn new(source: AgentServerSource) -> Self {
        Self {
            source,
            installation: Mutex::default(),
        }
    }

    /// The command. Installs the agent server first if needed.
    pub(crate) async fn command(&self, runtime: &Handle) -> Result<Vec<OsString>, SandboxError> {
        match &self.source {
            AgentServerSource::Command(command) => Ok(command.clone()),
            AgentServerSource::Provision(provisioner) => {
                let installation = self.installation(provisioner, runtime);
                let server = installation.await.map_err(errors::provision)?;
                Ok(server.command())
            }
        }
    }

    /// Joins the installation, or starts one: the first time, and after a failure.
    fn installation(&self, provisioner: &Provisioner, runtime: &Handle) -> SharedInstallation {
        let mut current = self.current();
        if let Some(installation) = &*current
            && !matches!(installation.peek(), Some(Err(_)))
        {
            return installation.clone();
        }
        let provisioner = provisioner.clone();
        let task = runtime.spawn(async move {
            let result = provisioner.ensure().await;
            result.inspect_err(|error| {
                tracing::error!(error = %chain(&error), "the installation of the agent server \
                 failed");
            })
        });
        let installation = async move {
            let failed = ProvisionError::io("running the installation");
            let result = task.await;
            result.unwrap_or_else(|error| Err(failed(std::io::Error::other(error))))
        };
        let installation = installation
            .map(|result| result.map_err(Arc::new))
            .boxed()
            .shared();
        *current = Some(installation.clone());
        installation
    }

    /// Forgets a finished installation, because its program is missing.
    pub(crate) fn forget_installation(&self) {
        let mut current = self.current();
        current.take_if(|installation| installation.peek().is_some());
    }

    fn current(&self) -> MutexGuard<'_, Option<SharedInstallation>> {
        let current = self.installation.lock();
        current.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn check(&self) -> Result<(), SandboxError> {
        let AgentServerSource::Provision(provisioner) = &self.source else {
            return Ok(());
        };
        let current = self.current().clone();
        match current.as_ref().map(Shared::peek) {
            Some(Some(Ok(_))) => Ok(()),
            Some(Some(Err(error))) => Err(errors::provision(Arc::clone(error))),
            Some(None) => Err(SandboxError::unavailable(
                "the agent server is being installed; this takes some minutes",
            )),
            None if provisioner.find().await.is_some() => Ok(()),
            None => Err(SandboxError::unavailable(
                "the agent server is not installed yet: the first start installs it",
            )),
        }
    }
}
