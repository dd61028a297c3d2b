//! Maps failures to errors of the port.

use std::io;
use std::sync::Arc;

use domain::sandbox::SandboxError;

use crate::provision::ProvisionError;

/// The agent server's process could not be spawned.
pub(crate) fn spawn(error: io::Error) -> SandboxError {
    let detail = match error.kind() {
        io::ErrorKind::NotFound => {
            "the agent server's command does not exist: the operator has to correct \
             WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"
                .to_owned()
        }
        kind => format!("cannot run the agent server's command ({kind})"),
    };
    SandboxError::StartFailed {
        detail,
        source: Some(Box::new(error)),
    }
}

/// Files or processes of the sandbox could not be removed.
pub(crate) fn removal_failed(error: io::Error) -> SandboxError {
    let detail = format!(
        "cannot remove all files and processes of the sandbox ({})",
        error.kind()
    );
    SandboxError::Unavailable {
        detail,
        source: Some(Box::new(error)),
    }
}

/// The text for clients contains no path; the source has all details for the log.
pub(crate) fn provision(error: Arc<ProvisionError>) -> SandboxError {
    let detail = match &*error {
        ProvisionError::NoPython { .. } => "no suitable Python was found: the agent server needs \
             CPython 3.12 or newer. Install uv or a Python with its venv module, or set \
             WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"
            .to_owned(),
        ProvisionError::Configuration(what) => what.clone(),
        ProvisionError::Step { step, .. }
        | ProvisionError::TooLong { step, .. }
        | ProvisionError::Io { step, .. } => {
            format!(
                "the installation of the agent server failed at \"{step}\": the operator finds the cause in the service's log"
            )
        }
    };
    SandboxError::Unavailable {
        detail,
        source: Some(Box::new(error)),
    }
}

/// Runs file and `/proc` work off the async workers.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SandboxError> {
    let task = tokio::task::spawn_blocking(work);
    task.await.map_err(SandboxError::other)
}
