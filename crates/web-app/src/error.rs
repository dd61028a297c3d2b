//! Errors, with what to do.

use std::io;
use std::path::PathBuf;

use outbound_http::{BodyError, SendError};
use url::Url;

/// The web application cannot be installed or served. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum WebAppError {
    /// The registry did not answer.
    #[error("cannot download {url}")]
    Send {
        /// The address of the archive.
        url: Url,
        /// What failed.
        #[source]
        source: SendError,
    },
    /// The registry answered with another status.
    #[error("cannot download {url}: the registry answers {status}")]
    Status {
        /// The address of the archive.
        url: Url,
        /// The status of the response.
        status: u16,
    },
    /// The connection broke, or the archive is too large.
    #[error("cannot download {url}")]
    Body {
        /// The address of the archive.
        url: Url,
        /// What failed.
        #[source]
        source: BodyError,
    },
    /// TLS is not available.
    #[error("TLS is not available: {0}")]
    Tls(String),
    /// Something took longer than it may.
    #[error("{0} takes too long")]
    TooLong(&'static str),
    /// The registry's URL cannot name a package.
    #[error("{0} is not a URL of a registry")]
    Registry(Url),
    /// The archive is not the pinned one.
    #[error(
        "the archive is not {name} {version}: its SHA-512 digest is {found}, expected {expected}"
    )]
    Integrity {
        /// The name of the package.
        name: &'static str,
        /// The version.
        version: &'static str,
        /// The digest of the archive.
        found: String,
        /// The digest of the pinned archive.
        expected: &'static str,
    },
    /// The archive has the right digest and a content that is not allowed.
    #[error("the archive cannot be unpacked: {0}")]
    Archive(String),
    /// The build has no page into which the service can write its parameters.
    #[error("{} is not a build of the web application: {problem}", .dir.display())]
    Build {
        /// The directory of the build.
        dir: PathBuf,
        /// What it lacks.
        problem: String,
    },
    /// A file operation failed.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
}

impl WebAppError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
