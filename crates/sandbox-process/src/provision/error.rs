//! Errors of the installation, with advice.

use std::io;
use std::time::Duration;

/// The installation failed. The text is for the operator and may contain paths of this machine, but no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    #[error("the installation is not configured correctly: {0}")]
    Configuration(String),
    #[error(
        "no suitable Python was found: CPython 3.12 or newer is needed. Looked for \
         python3.12, python3.13, python3.14, python3 and python on PATH, for pyenv versions and \
         for Pythons of uv{}. Install uv, or any Python from 3.8 with its venv module (on Debian: \
         python3-venv), with which a newer one is downloaded, or set sandbox.python, or set \
         WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND to the command of an agent server that you have \
         installed yourself",
        rejections(.rejected)
    )]
    NoPython {
        /// The candidates, each with the reason for its rejection.
        rejected: Vec<String>,
    },
    #[error("the installation failed at \"{step}\" ({status}):\n{}", .tail.join("\n"))]
    Step {
        step: &'static str,
        /// Exit code or signal.
        status: String,
        tail: Vec<String>,
    },
    #[error(
        "the installation took longer than {} s at \"{step}\":\n{}",
        .limit.as_secs(), .tail.join("\n")
    )]
    TooLong {
        step: &'static str,
        limit: Duration,
        tail: Vec<String>,
    },
    #[error("the installation failed at \"{step}\"")]
    Io {
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

impl ProvisionError {
    /// A failed file operation of this step.
    pub(crate) fn io(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { step, source }
    }
}

fn rejections(rejected: &[String]) -> String {
    if rejected.is_empty() {
        String::new()
    } else {
        format!(" ({})", rejected.join("; "))
    }
}
