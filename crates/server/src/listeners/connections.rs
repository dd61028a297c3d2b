//! Socket options and limits of client connections.
//!
//! `TCP_USER_TIMEOUT` detects a client that reads nothing: the kernel closes the connection when sent data stays
//! unacknowledged, or waits behind a closed window, for longer than that. Actix has no such time-out. Closing the
//! connection also drops the response.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Extensions;
use domain::error::chain;
use http_api::{ConnectionLimits, Connections, GatewayLimits, Listener};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

use crate::config::HttpSettings;
use crate::listeners::closable_stream::ClosableStream;

/// Longest time to receive a request head.
pub(crate) const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than proxies keep idle connections (60 s), so that the service never closes first.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);
/// The same for the callback listener.
const CALLBACK_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of the callback listener, and of one sandbox. A sandbox that hoards connections must not exhaust the file
/// descriptors or block reports of others.
const MAX_CALLBACK_CONNECTIONS: usize = 1024;
const MAX_CONNECTIONS_PER_SANDBOX: usize = 64;
/// Connections of the metrics listener. Their descriptors are part of [`RESERVED_FILE_DESCRIPTORS`].
const MAX_METRICS_CONNECTIONS: usize = 64;
/// Idle time before the first keep-alive probe, and interval of probes.
const TCP_KEEP_ALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// File descriptors for the database, engines and files.
const RESERVED_FILE_DESCRIPTORS: u64 = 1024;

/// How a listener treats connections.
#[derive(Clone)]
pub(crate) struct ConnectionPolicy {
    pub(crate) connections: Connections,
    pub(crate) keep_alive: Duration,
    /// Connections per worker, in case the service's own limit acts too late.
    pub(crate) max_per_worker: usize,
    send_timeout: Duration,
}

impl ConnectionPolicy {
    pub(crate) fn new(http: &HttpSettings, kind: Listener) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let (of_everybody, of_sandboxes) = connection_capacity(files);
        let (most, capacity, per_address, keep_alive) = match kind {
            Listener::Public => {
                let (most, per_address) = (http.max_connections, http.max_connections_per_address);
                (most, of_everybody, per_address, KEEP_ALIVE_TIMEOUT)
            }
            Listener::Callback => {
                let keep_alive = CALLBACK_KEEP_ALIVE_TIMEOUT;
                (
                    MAX_CALLBACK_CONNECTIONS,
                    of_sandboxes,
                    MAX_CONNECTIONS_PER_SANDBOX,
                    keep_alive,
                )
            }
            Listener::Metrics => (
                MAX_METRICS_CONNECTIONS,
                MAX_METRICS_CONNECTIONS,
                0,
                KEEP_ALIVE_TIMEOUT,
            ),
        };
        let trusted = match kind {
            Listener::Public => http.trusted_proxies.clone(),
            // No trusted proxies there: a network configured for a proxy may also contain sandboxes.
            Listener::Callback | Listener::Metrics => Vec::new(),
        };
        if most > capacity {
            tracing::info!(
                "the limit of open files ({}) allows {capacity} connections, not {most}: raise it (LimitNOFILE of systemd, \
                 ulimits of a container)",
                files.unwrap_or(u64::MAX)
            );
        }
        let most = most.min(capacity);
        Self {
            connections: Connections::new(ConnectionLimits {
                max_connections: most,
                max_per_address: per_address,
                idle_timeout: keep_alive + REQUEST_HEAD_TIMEOUT,
                trusted_proxies: trusted,
            }),
            keep_alive,
            max_per_worker: 2 * most,
            send_timeout: http.send_timeout,
        }
    }

    /// Called for each new connection. What it puts into `data` lives as long as the connection.
    pub(crate) fn on_connect(&self, io: &ClosableStream, data: &mut Extensions) {
        let stream = io.stream();
        if let Err(error) = self.tune(&stream) {
            tracing::debug!(error = %chain(&error), "cannot set socket options; using the connection as it is");
        }
        let Ok(peer) = stream.peer_addr() else {
            // The peer has disconnected.
            io.end().now();
            return;
        };
        let end = Arc::clone(io.end());
        data.insert(self.connections.accept(peer.ip(), move || end.now()));
    }

    fn tune(&self, stream: &TcpStream) -> rustix::io::Result<()> {
        // A stream's head is sent before its body: without this option a client waits 40 ms for an acknowledgement.
        sockopt::set_tcp_nodelay(stream, true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, TCP_KEEP_ALIVE_IDLE_TIMEOUT)?;
        sockopt::set_tcp_keepintvl(stream, TCP_KEEP_ALIVE_INTERVAL)?;
        let millis = u32::try_from(self.send_timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, millis)
    }
}

/// Connections of the public and of the callback listener that fit into the limit of open files. Each needs one file;
/// forwarded connections count at their maximum. A quarter more is reserved for essential requests when all connections are
/// busy ([`Connections`]).
fn connection_capacity(files: Option<u64>) -> (usize, usize) {
    let files = files.unwrap_or(u64::MAX);
    let of_sandboxes = (MAX_CALLBACK_CONNECTIONS as u64).min(files / 16);
    let left = files - RESERVED_FILE_DESCRIPTORS.min(files / 2) - of_sandboxes;
    let forwarding = GatewayLimits::default();
    let forwarded = (forwarding.max_requests + forwarding.max_tunnels) as u64;
    let for_everybody = left - forwarded.min(left / 2);
    let count = |it| usize::try_from(it).unwrap_or(usize::MAX);
    (count(for_everybody / 5 * 4), count(of_sandboxes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_bound_connections() {
        for (files, connections) in [
            (Some(1024), (176, 64)),
            (Some(4096), (1_124, 256)),
            (Some(20_000), (10_264, MAX_CALLBACK_CONNECTIONS)),
            (Some(65_536), (46_692, MAX_CALLBACK_CONNECTIONS)),
        ] {
            assert_eq!(connection_capacity(files), connections, "{files:?}");
        }
        let (of_everybody, of_sandboxes) = connection_capacity(None);
        assert!(of_everybody > 1 << 40 && of_sandboxes == MAX_CALLBACK_CONNECTIONS);
    }
}
