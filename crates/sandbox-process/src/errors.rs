//! The one place where failures become the port's error.

use std::io;
use std::sync::Arc;

use domain::sandbox::SandboxError;

use crate::provision::ProvisionError;

/// A file or process operation that should not fail.
pub(crate) fn other(error: io::Error) -> SandboxError {
    SandboxError::Other(Box::new(error))
}

/// The agent server's process could not be made.
pub(crate) fn spawn(error: io::Error) -> SandboxError {
    let detail = match error.kind() {
        io::ErrorKind::NotFound => {
            "the agent server's command does not exist: the operator has to check \
             WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"
                .to_owned()
        }
        kind => format!("the agent server's command could not be run ({kind})"),
    };
    SandboxError::StartFailed {
        detail,
        source: Some(Box::new(error)),
    }
}

/// What belongs to the sandbox could not be removed or ended.
pub(crate) fn still_here(error: io::Error) -> SandboxError {
    let detail = format!(
        "not everything of the sandbox could be removed ({})",
        error.kind()
    );
    SandboxError::Unavailable {
        detail,
        source: Some(Box::new(error)),
    }
}

/// The text for clients names no path; the source has everything for the log.
pub(crate) fn provision(error: Arc<ProvisionError>) -> SandboxError {
    let detail = match &*error {
        ProvisionError::NoPython { .. } => "no suitable Python was found: the agent server needs \
             CPython 3.12 or newer. Install uv or Python 3.12 with its venv module, or set \
             WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"
            .to_owned(),
        ProvisionError::Configuration(what) => what.clone(),
        ProvisionError::Step { step, .. }
        | ProvisionError::TooLong { step, .. }
        | ProvisionError::Io { step, .. } => {
            format!(
                "the agent server could not be installed (at \"{step}\"); the service's log says why"
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
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SandboxError::Other(Box::new(error)))
}
