//! The engine's API: every call has a deadline, and every failure a kind.
//!
//! Knows: the engine's address. Each call connects by itself, so the service starts while the engine is down.

mod endpoint;
pub(crate) mod errors;
pub(crate) mod watch;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bollard::models::{ContainerSummary, ImageInspect};
use bollard::query_parameters::ListContainersOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use domain::crash_point;
use domain::id::HostId;
use domain::sandbox::SandboxError;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::config::DockerConfig;
use crate::container::labels;
use crate::engine::errors::{EngineError, EngineErrorKind};

const DEFAULT_SOCKET: &str = "unix:///var/run/docker.sock";

/// [`Engine::call`] enforces the deadlines; the client's own time-out for the response head only has to be longer.
const CLIENT_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// A container engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine(Arc<EngineInner>);

struct EngineInner {
    address: EngineAddress,
    limit: Duration,
    /// Created by the first call that finds the socket: the client cannot be created without it.
    client: OnceLock<Docker>,
    /// The owner of the socket, once known.
    user: OnceLock<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EngineAddress {
    Unix(String),
    Tcp(String),
}

impl Engine {
    /// An engine at the configured address. Sends no request yet.
    pub(crate) fn new(config: &DockerConfig) -> Result<Self, SandboxError> {
        let socket = config.socket.as_deref().unwrap_or(DEFAULT_SOCKET);
        let address = EngineAddress::parse(socket).ok_or_else(|| {
            SandboxError::unavailable(
                "the engine's address is neither unix:///PATH nor tcp://HOST:PORT: the operator has to correct \
                 WORKSPACE_DOCKER__SOCKET",
            )
        })?;
        Ok(Self(Arc::new(EngineInner {
            address,
            limit: config.call_limit,
            client: OnceLock::new(),
            user: OnceLock::new(),
        })))
    }

    /// The client, for streams, which need deadlines of their own.
    pub(crate) fn client(&self) -> Result<&Docker, EngineError> {
        if let Some(client) = self.0.client.get() {
            return Ok(client);
        }
        let client = match &self.0.address {
            EngineAddress::Unix(path) => {
                Docker::connect_with_unix(path, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            }
            EngineAddress::Tcp(host) => {
                Docker::connect_with_http(host, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            }
        };
        let client = client.map_err(|error| EngineError::new("connecting to the engine", error))?;
        Ok(self.0.client.get_or_init(|| client))
    }

    /// Makes a call within the configured time-out. `what` completes "timed out: " for a person.
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

    /// Makes a call within its own time-out.
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
        // bollard logs bodies at debug level, which would put the environment of a container with its keys into the log.
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

    /// Inspects an image; `None` if the engine does not have it.
    pub(crate) async fn image(&self, name: &str) -> Result<Option<ImageInspect>, EngineError> {
        let response = self.call("inspecting the image", |docker| docker.inspect_image(name));
        match response.await {
            Err(error) if error.is_missing() => Ok(None),
            response => response.map(Some),
        }
    }

    pub(crate) async fn containers(
        &self,
        instance: &HostId,
        only_running: bool,
    ) -> Result<Vec<ContainerSummary>, EngineError> {
        let label = labels::of_instance(instance);
        let mut filters = HashMap::from([("label", vec![label.as_str()])]);
        if only_running {
            filters.insert("status", vec!["running"]);
        }
        let options = ListContainersOptionsBuilder::new()
            .all(!only_running)
            .filters(&filters)
            .build();
        let listed = self.call("listing containers", |docker| {
            docker.list_containers(Some(options))
        });
        listed.await
    }

    /// Whether the engine's socket is on this machine. An engine on the network may be anywhere.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.0.address, EngineAddress::Unix(_))
    }

    /// The user that the engine runs as; `None` if it is reached over the network.
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
    fn addresses_are_unix_sockets_or_tcp() {
        let unix = |path: &str| Some(EngineAddress::Unix(path.to_owned()));
        let tcp = |host: &str| Some(EngineAddress::Tcp(host.to_owned()));
        assert_eq!(
            EngineAddress::parse(DEFAULT_SOCKET),
            unix("/var/run/docker.sock")
        );
        assert_eq!(
            EngineAddress::parse("/run/podman.sock"),
            unix("/run/podman.sock")
        );
        assert_eq!(
            EngineAddress::parse("tcp://10.0.0.1:2375"),
            tcp("tcp://10.0.0.1:2375")
        );
        assert_eq!(
            EngineAddress::parse("http://engine:2375/"),
            tcp("tcp://engine:2375")
        );
        for invalid in [
            "",
            "docker.sock",
            "unix://docker.sock",
            "tcp://",
            "ssh://host",
            "tcp://a/b",
        ] {
            assert_eq!(EngineAddress::parse(invalid), None, "{invalid}");
        }
    }
}
