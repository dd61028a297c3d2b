//! Connections to the agent servers of sandboxes: no byte is sent before the listener is proven to be the sandbox's.
//!
//! **Knows** sockets of this machine, and how to connect over TCP. **Must never know** the processes and containers of a
//! sandbox (the backends implement [`EndpointGuard`]), or the protocol on a connection.
//!
//! No process owns a port. While an agent server boots, and after it has ended, any account of the machine can listen on its
//! port and would receive keys. Linux gives a port to one listener at a time. So the connector
//!
//! 1. looks up the listening socket and lets the guard prove that the sandbox holds it,
//! 2. connects,
//! 3. looks up the listening socket again. If it is still the same one, it has accepted the connection.

mod connector;
mod socket;

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use thiserror::Error;
use tokio::net::TcpStream;

pub use connector::{ConnectError, Connector};
pub use socket::{ListeningSocket, is_local, listener, look_up};

/// Proves which sandbox holds a listening socket.
#[async_trait]
pub trait EndpointGuard: Send + Sync + 'static {
    /// Proves that this sandbox holds the socket that listens at `address`, and returns the socket. `None` if no proof is
    /// possible, because the address belongs to another machine.
    ///
    /// # Errors
    /// The connection must not be used, see [`GuardError`]. A retry may succeed.
    async fn prove(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<ListeningSocket>, GuardError>;

    /// Connects to this sandbox in the backend's own way, for a sandbox whose network this machine does not reach. `None`:
    /// over TCP, with [`prove`](Self::prove).
    ///
    /// # Errors
    /// See [`GuardError`]. A retry may succeed.
    async fn connect(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<TcpStream>, GuardError> {
        let _ = (sandbox, address);
        Ok(None)
    }
}

/// The reason why an address must not be used.
#[derive(Debug, Error)]
pub enum GuardError {
    /// The sandbox may still be booting.
    #[error("nothing listens on port {0}")]
    NotListening(u16),
    /// Another process has taken the port.
    #[error("port {0} is held by another process, not by this sandbox")]
    HeldByAnother(u16),
    /// The look-up of the socket failed.
    #[error("cannot determine which process listens on port {port}")]
    Unknown {
        /// The port.
        port: u16,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Skips the proof, for servers of other machines and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unguarded;

#[async_trait]
impl EndpointGuard for Unguarded {
    async fn prove(&self, _: &str, _: SocketAddr) -> Result<Option<ListeningSocket>, GuardError> {
        Ok(None)
    }
}
