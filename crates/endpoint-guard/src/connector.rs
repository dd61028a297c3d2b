//! Connects, and proves before the first byte that the sandbox holds the listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tower_service::Service;

use crate::{EndpointGuard, GuardError, look_up};

/// Error of a connection attempt.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The sandbox does not hold the listener.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The address is not `SANDBOX@HOST` or `SANDBOX@HOST:PORT`.
    #[error("invalid address: expected SANDBOX@HOST or SANDBOX@HOST:PORT")]
    Address,
    /// The host name does not resolve.
    #[error("the host name of the agent server cannot be resolved")]
    Host(#[source] io::Error),
    /// The connection was not accepted.
    #[error("cannot connect to the agent server")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection timed out.
    #[error("no connection within {}s", .0.as_secs())]
    TimedOut(Duration),
}

/// Makes connections to agent servers. Cheap to clone.
///
/// As a [`Service`] it takes URIs whose user is the sandbox (`http://SANDBOX@HOST:PORT`). So a pool with the authority as key never
/// uses a connection to one sandbox for another.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    limit: Duration,
    guard: Arc<dyn EndpointGuard>,
}

impl Connector {
    /// Connects with `tcp`. `limit` is the timeout of look-up, proof and connection together.
    pub fn new(tcp: HttpConnector, limit: Duration, guard: Arc<dyn EndpointGuard>) -> Self {
        Self { tcp, limit, guard }
    }

    /// Connects to `SANDBOX@HOST` or `SANDBOX@HOST:PORT`. That sandbox has accepted the returned connection.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self, authority: &str) -> Result<TokioIo<TcpStream>, ConnectError> {
        timeout(self.limit, self.connect_any(authority))
            .await
            .unwrap_or(Err(ConnectError::TimedOut(self.limit)))
    }

    async fn connect_any(&self, authority: &str) -> Result<TokioIo<TcpStream>, ConnectError> {
        let (sandbox, server) = authority.rsplit_once('@').ok_or(ConnectError::Address)?;
        let uri: Uri = format!("http://{server}")
            .parse()
            .map_err(|_| ConnectError::Address)?;
        let host = uri.host().ok_or(ConnectError::Address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = lookup_host((host, uri.port_u16().unwrap_or(80))).await;
        let mut last_error = ConnectError::Address;
        for address in addresses.map_err(ConnectError::Host)? {
            match self.connect_to(sandbox, address).await {
                Ok(io) => return Ok(io),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn connect_to(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<TokioIo<TcpStream>, ConnectError> {
        if let Some(stream) = self.guard.connect(sandbox, address).await? {
            stream
                .set_nodelay(true)
                .map_err(|error| ConnectError::Connect(error.into()))?;
            return Ok(TokioIo::new(stream));
        }
        let proven_socket = self.guard.prove(sandbox, address).await?;
        let uri: Uri = format!("http://{address}/")
            .parse()
            .map_err(|_| ConnectError::Address)?;
        let io = self.tcp.clone().call(uri).await;
        let io = io.map_err(|error| ConnectError::Connect(error.into()))?;
        if proven_socket.is_some() {
            let port = address.port();
            let socket = look_up(address).await;
            let socket = socket.map_err(|source| GuardError::Unknown { port, source })?;
            if socket != proven_socket {
                return Err(GuardError::HeldByAnother(port).into());
            }
        }
        Ok(io)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        async move {
            let authority = uri.authority().ok_or(ConnectError::Address)?;
            connector.connect(authority.as_str()).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::{ListeningSocket, Unguarded, listener};

    fn connector(guard: impl EndpointGuard) -> Connector {
        Connector::new(
            HttpConnector::new(),
            Duration::from_secs(30),
            Arc::new(guard),
        )
    }

    /// Proves every listener, and replaces it immediately afterwards.
    struct ReplacingGuard(Mutex<Option<TcpListener>>);

    #[async_trait]
    impl EndpointGuard for ReplacingGuard {
        async fn prove(
            &self,
            _: &str,
            address: SocketAddr,
        ) -> Result<Option<ListeningSocket>, GuardError> {
            let proven_socket = listener(address).unwrap();
            let mut socket = self.0.lock().unwrap();
            drop(socket.take());
            *socket = Some(TcpListener::bind(address).unwrap());
            Ok(proven_socket)
        }
    }

    #[tokio::test]
    async fn a_listener_that_changes_after_the_proof_is_refused() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let guarded = connector(ReplacingGuard(Mutex::new(Some(socket))));
        let refused = guarded
            .connect(&format!("one@{address}"))
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, ConnectError::Guard(GuardError::HeldByAnother(port)) if *port == address.port()),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn host_names_and_ip_addresses_are_accepted() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        for server in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
            let connected = connector(Unguarded).connect(&format!("one@{server}")).await;
            assert!(connected.is_ok(), "{server}: {connected:?}");
        }
        for wrong in ["127.0.0.1:1", "one@", "one@a b"] {
            let refused = connector(Unguarded).connect(wrong).await.unwrap_err();
            assert!(
                matches!(refused, ConnectError::Address),
                "{wrong}: {refused:?}"
            );
        }
    }
}
