//! Classifies failures of the engine and maps them to errors of the port.

use std::error::Error;
use std::{fmt, io};

use bollard::errors::Error as ClientError;
use domain::sandbox::SandboxError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineErrorKind {
    NotFound,
    /// The image of the container to create does not exist.
    ImageMissing,
    /// The network of the container to create does not exist.
    NetworkMissing,
    /// A conflict: a name is in use, a removal is in progress, or a volume is in use (409).
    Conflict,
    NoSpace,
    /// The engine does not accept a connection, or closed it.
    Unreachable,
    /// The socket exists, and the service has no permission to use it.
    Forbidden,
    TimedOut,
    /// Another refusal, or an unexpected response.
    Other,
}

impl fmt::Display for EngineErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::ImageMissing => "the image does not exist",
            Self::NetworkMissing => "the network does not exist",
            Self::Conflict => "it is in use or being removed",
            Self::NoSpace => "the disk is full",
            Self::Unreachable => "the engine is not reachable",
            Self::Forbidden => "no permission to use the engine's socket",
            Self::TimedOut => "the engine did not respond in time",
            Self::Other => "the engine refused, or its response is unexpected",
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{what} failed ({kind})")]
pub(crate) struct EngineError {
    pub(crate) kind: EngineErrorKind,
    /// The operation: "creating the container".
    pub(crate) what: &'static str,
    source: Option<ClientError>,
}

impl EngineError {
    /// A failure that the client reported.
    pub(crate) fn new(what: &'static str, source: ClientError) -> Self {
        Self {
            kind: classify(&source),
            what,
            source: Some(source),
        }
    }

    /// A failure that the service detected itself.
    pub(crate) fn of(what: &'static str, kind: EngineErrorKind) -> Self {
        Self {
            kind,
            what,
            source: None,
        }
    }

    /// Whether the engine itself is the problem rather than the request.
    pub(crate) fn is_connection_failure(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::Unreachable | EngineErrorKind::Forbidden | EngineErrorKind::TimedOut
        )
    }

    /// Whether the operator has to do something about the engine, whatever the request.
    pub(crate) fn is_engine_failure(&self) -> bool {
        self.is_connection_failure() || self.kind == EngineErrorKind::NoSpace
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::NotFound | EngineErrorKind::ImageMissing
        )
    }

    /// Whether another task or process changed or removed the resource.
    pub(crate) fn is_changed_elsewhere(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::NotFound | EngineErrorKind::Conflict
        )
    }

    /// Whether a network was refused because its device exists or is being created: Docker reports `networks have same
    /// bridge name`, Podman `already in use`. Other refusals (no addresses left, no permission) are permanent.
    pub(crate) fn is_duplicate_network(&self) -> bool {
        let message = self.message();
        let texts = ["same bridge name", "already", "exists"];
        texts.iter().any(|text| message.contains(text)) || self.kind == EngineErrorKind::Conflict
    }

    /// The engine's message on one line, without paths of its host.
    pub(crate) fn message(&self) -> String {
        let text = match &self.source {
            Some(
                ClientError::DockerResponseServerError { message, .. }
                | ClientError::DockerStreamError { error: message }
                | ClientError::DockerContainerWaitError { error: message, .. },
            ) => message.trim().to_owned(),
            Some(_) => "its response was not understood".to_owned(),
            None => "no response".to_owned(),
        };
        without_host_paths(&text)
    }

    /// The cause for a person: what is wrong and what to do.
    pub(crate) fn detail(&self) -> String {
        let text = match self.kind {
            EngineErrorKind::Unreachable => {
                "the container engine does not answer: the operator has to check that it is running and that \
                 WORKSPACE_DOCKER__SOCKET names it"
            }
            EngineErrorKind::Forbidden => {
                "the service has no permission to use the container engine's socket: the operator has to add its user to \
                 the socket's group (usually \"docker\"), or set WORKSPACE_DOCKER__SOCKET"
            }
            EngineErrorKind::NoSpace => {
                "the container engine's disk is full: the operator has to free space on it"
            }
            EngineErrorKind::TimedOut => {
                "the container engine did not answer in time: it is overloaded or hangs, and the operator has to check it"
            }
            EngineErrorKind::ImageMissing => {
                "the container engine no longer has the sandbox's image: start the sandbox again to pull it"
            }
            EngineErrorKind::NotFound
            | EngineErrorKind::NetworkMissing
            | EngineErrorKind::Conflict
            | EngineErrorKind::Other => {
                let (what, message) = (self.what, self.message());
                return format!("the container engine refused ({what}): {message}");
            }
        };
        text.to_owned()
    }

    pub(crate) fn start_failed(self) -> SandboxError {
        if self.is_engine_failure() {
            return self.into();
        }
        SandboxError::StartFailed {
            detail: self.detail(),
            source: Some(Box::new(self)),
        }
    }

    pub(crate) fn removal_failed(self) -> SandboxError {
        let detail = format!(
            "cannot remove all resources of the sandbox: {}",
            self.detail()
        );
        SandboxError::Unavailable {
            detail,
            source: Some(Box::new(self)),
        }
    }
}

impl From<EngineError> for SandboxError {
    fn from(error: EngineError) -> Self {
        match error.kind {
            EngineErrorKind::NotFound => Self::NotFound,
            EngineErrorKind::TimedOut => Self::TimedOut { what: error.what },
            _ => Self::Unavailable {
                detail: error.detail(),
                source: Some(Box::new(error)),
            },
        }
    }
}

fn classify(error: &ClientError) -> EngineErrorKind {
    match error {
        ClientError::DockerResponseServerError {
            status_code,
            message,
        } => kind_of_response(*status_code, message),
        ClientError::DockerStreamError { error }
        | ClientError::DockerContainerWaitError { error, .. } => kind_of_response(500, error),
        ClientError::SocketNotFoundError(_) => EngineErrorKind::Unreachable,
        ClientError::RequestTimeoutError => EngineErrorKind::TimedOut,
        other if is_permission_denied(other) => EngineErrorKind::Forbidden,
        ClientError::HyperLegacyError { .. }
        | ClientError::HyperResponseError { .. }
        | ClientError::IOError { .. } => EngineErrorKind::Unreachable,
        _ => EngineErrorKind::Other,
    }
}

/// The message is more specific than the status.
fn kind_of_response(status: u16, message: &str) -> EngineErrorKind {
    let message = message.to_ascii_lowercase();
    if message.contains("no space left on device") {
        return EngineErrorKind::NoSpace;
    }
    // Podman reports both with status 500.
    if message.contains("that name is already in use") {
        return EngineErrorKind::Conflict;
    }
    if message.contains("unable to find network") {
        return EngineErrorKind::NetworkMissing;
    }
    match status {
        // Podman puts the image's name in between: "no such image".
        404 if message.contains("no such image") || message.contains("image not known") => {
            EngineErrorKind::ImageMissing
        }
        404 if message.contains("network") && message.contains("not found") => {
            EngineErrorKind::NetworkMissing
        }
        404 => EngineErrorKind::NotFound,
        409 => EngineErrorKind::Conflict,
        502..=504 => EngineErrorKind::Unreachable,
        _ => EngineErrorKind::Other,
    }
}

fn is_permission_denied(error: &ClientError) -> bool {
    // This variant wraps its error without listing it as a source.
    if let ClientError::IOError { err } = error {
        return err.kind() == io::ErrorKind::PermissionDenied;
    }
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::PermissionDenied
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Directories of engines. Their paths mean nothing to the user of a sandbox.
const HOST_PATH_PREFIXES: [&str; 7] = [
    "/var/lib/",
    "/run/",
    "/var/run/",
    "/overlay2/",
    "/volumes/",
    "/containerd/",
    "/proc/",
];

/// Replaces paths of the engine's host, as in `source path does not exist: /data/x`.
pub(crate) fn without_host_paths(text: &str) -> String {
    let bind_source = text.contains("bind source path") || text.contains("mounting \"");
    let words = text.split_whitespace().map(|word| {
        let start = word.find('/');
        let hidden = start.is_some_and(|start| {
            let path = &word[start..];
            let rooted =
                start == 0 || !word[..start].ends_with(|c: char| c.is_ascii_alphanumeric());
            rooted
                && (bind_source
                    || HOST_PATH_PREFIXES
                        .iter()
                        .any(|prefix| path.contains(prefix)))
        });
        if hidden { "<path>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status_code: u16, message: &str) -> EngineError {
        let message = message.to_owned();
        EngineError::new(
            "creating the container",
            ClientError::DockerResponseServerError {
                status_code,
                message,
            },
        )
    }

    #[test]
    fn duplicate_networks_differ_from_permanent_refusals() {
        for (status, message, is_duplicate_network) in [
            (
                403,
                "cannot create network a (aw-1): conflicts with network b (aw-1): networks have same bridge name",
                true,
            ),
            (409, "network with name x already exists", true),
            (500, "bridge name aw-1 already in use", true),
            (500, "Error creating bridge: file exists", true),
            (
                500,
                "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
                false,
            ),
            (
                403,
                "all predefined address pools have been fully subnetted",
                false,
            ),
            (500, "Failed to Setup IP tables: permission denied", false),
        ] {
            assert_eq!(
                refusal(status, message).is_duplicate_network(),
                is_duplicate_network,
                "{message}"
            );
        }
    }

    #[test]
    fn refusals_are_classified() {
        for (status, message, kind) in [
            (404, "No such container: x", EngineErrorKind::NotFound),
            (404, "No such image: x:1", EngineErrorKind::ImageMissing),
            (404, "network x not found", EngineErrorKind::NetworkMissing),
            (
                409,
                "Conflict. The container name is in use",
                EngineErrorKind::Conflict,
            ),
            (
                500,
                "write /x: no space left on device",
                EngineErrorKind::NoSpace,
            ),
            (
                500,
                "container create: creating container storage: the container name \"x\" is already in use by 01. You have \
                 to remove that container to be able to reuse that name: that name is already in use",
                EngineErrorKind::Conflict,
            ),
            (
                500,
                "unable to find network with name or ID x: network not found",
                EngineErrorKind::NetworkMissing,
            ),
            (
                500,
                "driver failed programming external connectivity: address already in use",
                EngineErrorKind::Other,
            ),
            (
                400,
                "Unknown runtime specified runsc",
                EngineErrorKind::Other,
            ),
        ] {
            assert_eq!(refusal(status, message).kind, kind, "{message}");
        }
    }

    #[test]
    fn an_unreachable_socket_and_a_forbidden_one_differ() {
        let io = |kind: io::ErrorKind| EngineError::new("x", io::Error::from(kind).into());
        assert_eq!(
            io(io::ErrorKind::ConnectionRefused).kind,
            EngineErrorKind::Unreachable
        );
        assert_eq!(
            io(io::ErrorKind::PermissionDenied).kind,
            EngineErrorKind::Forbidden
        );
        let text = io(io::ErrorKind::PermissionDenied).detail();
        assert!(text.contains("WORKSPACE_DOCKER__SOCKET"), "{text}");
    }

    #[test]
    fn messages_of_the_engine_omit_paths_of_its_host() {
        for (message, reported) in [
            (
                "invalid mount config for type \"bind\": bind source path does not exist: /srv/x",
                "invalid mount config for type \"bind\": bind source path does not exist: <path>",
            ),
            (
                "mkdir /var/lib/docker/overlay2/abc: denied",
                "mkdir <path> denied",
            ),
            (
                "exec: \"/usr/bin/x\": stat /usr/bin/x: no such file",
                "exec: \"/usr/bin/x\": stat /usr/bin/x: no such file",
            ),
            ("no such image: a/b/run/c:1", "no such image: a/b/run/c:1"),
        ] {
            assert_eq!(refusal(400, message).message(), reported);
        }
    }
}
