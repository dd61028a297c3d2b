//! The engine's API: every call has a deadline, and every failure a kind.
//!
//! Knows: where the engine is. Connecting is done by the calls themselves, so the service starts while the engine is down.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use domain::crash_point;
use domain::sandbox::SandboxError;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::config::DockerConfig;
use crate::errors::{EngineError, EngineErrorKind};

/// Where Docker listens unless it is told otherwise.
const DEFAULT_SOCKET: &str = "unix:///var/run/docker.sock";

/// Deadlines are ours, in [`Engine::call`]; the client's own (in seconds, for the head of an answer) only has to be longer.
const CLIENT_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// A container engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine(Arc<EngineInner>);

struct EngineInner {
    address: EngineAddress,
    limit: Duration,
    /// Made by the first call that finds the socket: the client refuses to be made without it.
    client: OnceLock<Docker>,
    /// Who has its socket, once that is known.
    user: OnceLock<u32>,
}

/// Where the engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EngineAddress {
    Unix(String),
    Tcp(String),
}

impl Engine {
    /// An engine at the configured address; nothing is asked of it yet.
    pub(crate) fn new(config: &DockerConfig) -> Result<Self, SandboxError> {
        let socket = config.socket.as_deref().unwrap_or(DEFAULT_SOCKET);
        let address = EngineAddress::parse(socket).ok_or_else(|| SandboxError::Unavailable {
            detail: "the engine's address is neither unix:///PATH nor tcp://HOST:PORT: the \
                     operator has to check WORKSPACE_DOCKER__SOCKET"
                .to_owned(),
            source: None,
        })?;
        Ok(Self(Arc::new(EngineInner {
            address,
            limit: config.call_limit,
            client: OnceLock::new(),
            user: OnceLock::new(),
        })))
    }

    /// The client, for calls that need a deadline of another shape (streams): whoever uses it brings one.
    pub(crate) fn client(&self) -> Result<&Docker, EngineError> {
        if let Some(client) = self.0.client.get() {
            return Ok(client);
        }
        let made = match &self.0.address {
            EngineAddress::Unix(path) => {
                Docker::connect_with_unix(path, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            }
            EngineAddress::Tcp(host) => {
                Docker::connect_with_http(host, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            }
        };
        let made = made.map_err(|error| EngineError::new("connecting to the engine", error))?;
        Ok(self.0.client.get_or_init(|| made))
    }

    /// Makes a call within the configured limit. `what` completes "timed out: " for a person.
    pub(crate) async fn call<'a, T, Fut>(
        &'a self,
        what: &'static str,
        request: impl FnOnce(&'a Docker) -> Fut,
    ) -> Result<T, EngineError>
    where
        Fut: Future<Output = Result<T, bollard::errors::Error>>,
    {
        self.call_within(what, self.0.limit, request).await
    }

    /// Makes a call within a limit of its own.
    pub(crate) async fn call_within<'a, T, Fut>(
        &'a self,
        what: &'static str,
        limit: Duration,
        request: impl FnOnce(&'a Docker) -> Fut,
    ) -> Result<T, EngineError>
    where
        Fut: Future<Output = Result<T, bollard::errors::Error>>,
    {
        let client = self.client()?;
        // bollard logs bodies at debug level: the environment of a container, with its keys, would be in our log.
        let request = async { request(client).await }.with_subscriber(NoSubscriber::default());
        crash_point::before(what);
        let request = timeout(limit, request);
        let outcome = request
            .instrument(tracing::debug_span!("engine.call", what))
            .await;
        crash_point::after(what);
        match outcome {
            Ok(outcome) => outcome.map_err(|error| EngineError::new(what, error)),
            Err(_) => Err(EngineError::of(what, EngineErrorKind::TimedOut)),
        }
    }

    /// Whether it is reached by a socket of this machine: over the network it may be anywhere.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.0.address, EngineAddress::Unix(_))
    }

    /// The user that it runs as; `None` if it is reached over the network.
    pub(crate) async fn user(&self) -> io::Result<Option<u32>> {
        let EngineAddress::Unix(path) = &self.0.address else {
            return Ok(None);
        };
        if let Some(user) = self.0.user.get() {
            return Ok(Some(*user));
        }
        let path = path.strip_prefix("unix://").unwrap_or(path);
        let socket = timeout(self.0.limit, UnixStream::connect(path)).await;
        let user = socket.map_err(io::Error::from)??.peer_cred()?.uid();
        Ok(Some(*self.0.user.get_or_init(|| user)))
    }

    /// How long a call may take.
    pub(crate) fn limit(&self) -> Duration {
        self.0.limit
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.0.address).finish()
    }
}

impl EngineAddress {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://").or(Some(text))
            && path.starts_with('/')
        {
            return Some(Self::Unix(path.to_owned()));
        }
        let rest = ["tcp://", "http://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))?;
        let host = rest.trim_end_matches('/');
        (!host.is_empty() && !host.contains('/')).then(|| Self::Tcp(format!("tcp://{host}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let unix = |path: &str| Some(EngineAddress::Unix(path.to_owned()));
        let tcp = |host: &str| Some(EngineAddress::Tcp(host.to_owned()));
        assert_eq!(EngineAddress::parse(DEFAULT_SOCKET), unix("/var/run/docker.sock"));
        assert_eq!(EngineAddress::parse("/run/podman.sock"), unix("/run/podman.sock"));
        assert_eq!(
            EngineAddress::parse("tcp://10.0.0.1:2375"),
            tcp("tcp://10.0.0.1:2375")
        );
        assert_eq!(
            EngineAddress::parse("http://engine:2375/"),
            tcp("tcp://engine:2375")
        );
        for wrong in [
            "",
            "docker.sock",
            "unix://docker.sock",
            "tcp://",
            "ssh://host",
            "tcp://a/b",
        ] {
            assert_eq!(EngineAddress::parse(wrong), None, "{wrong}");
        }
    }
}
