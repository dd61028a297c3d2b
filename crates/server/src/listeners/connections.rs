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

pub(crate) const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than proxies keep idle connections (60 s), so that the service never closes first.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);
/// The same for the callback listener.
const CALLBACK_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of the callback listener, and of one sandbox. A sandbox that hoards connections must not exhaust the
/// file descriptors or block reports of others.
const MAX_CALLBACK_CONNECTIONS: usize = 1024;
const MAX_CONNECTIONS_PER_SANDBOX: usize = 64;
/// Maximum number of connections of the metrics listener. Their descriptors are part of [`RESERVED_FILE_DESCRIPTORS`].
const MAX_METRICS_CONNECTIONS: usize = 64;
/// Idle time before the first keep-alive probe, and interval of probes.
const TCP_KEEP_ALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// File descriptors for the database, engines and files.
const RESERVED_FILE_DESCRIPTORS: u64 = 1024;

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
        let (public, callback) = connection_capacity(files);
        let (max, capacity, per_address) = match kind {
            Listener::Public => {
                let per_address = http.max_connections_per_address;
                (http.max_connections, public, per_address)
            }
            Listener::Callback | Listener::Automations => {
                let per_sandbox = MAX_CONNECTIONS_PER_SANDBOX;
                (MAX_CALLBACK_CONNECTIONS, callback, per_sandbox)
            }
            Listener::Metrics => (MAX_METRICS_CONNECTIONS, MAX_METRICS_CONNECTIONS, 0),
        };
        let keep_alive = match kind {
            Listener::Public | Listener::Metrics => KEEP_ALIVE_TIMEOUT,
            Listener::Callback | Listener::Automations => CALLBACK_KEEP_ALIVE_TIMEOUT,
        };
        let trusted = match kind {
            Listener::Public => http.trusted_proxies.clone(),
            // No trusted proxies there: a network configured for a proxy may also contain sandboxes.
            Listener::Callback | Listener::Metrics | Listener::Automations => Vec::new(),
        };
        if max > capacity {
            tracing::warn!(
                "the limit of open files ({}) allows {capacity} connections, and {max} are configured: raise the limit of open files (LimitNOFILE \
                 of systemd, ulimits of a container)",
                files.unwrap_or(u64::MAX)
            );
        }
        let max = max.min(capacity);
        Self {
            connections: Connections::new(ConnectionLimits {
                max_connections: max,
                max_per_address: per_address,
                idle_timeout: keep_alive + REQUEST_HEAD_TIMEOUT,
                trusted_proxies: trusted,
            }),
            keep_alive,
            max_per_worker: 2 * max,
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
            io.close_token().cancel();
            return;
        };
        let close_token = io.close_token().clone();
        let connection = self
            .connections
            .accept(peer.ip(), move || close_token.cancel());
        let connection = Arc::new(connection);
        io.count_as(Arc::clone(&connection));
        data.insert(connection);
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
/// forwarded connections count at their maximum. A quarter more is reserved for essential requests when all connections
/// are busy ([`Connections`]).
fn connection_capacity(files: Option<u64>) -> (usize, usize) {
    let files = files.unwrap_or(u64::MAX);
    let callback = (MAX_CALLBACK_CONNECTIONS as u64).min(files / 16);
    let available = files - RESERVED_FILE_DESCRIPTORS.min(files / 2) - callback;
    let forwarding = GatewayLimits::default();
    let forwarded = (forwarding.max_requests + forwarding.max_tunnels) as u64;
    let public = available - forwarded.min(available / 2);
    let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
    (count(public / 5 * 4), count(callback))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_limits_connections() {
        for (files, connections) in [
            (Some(1024), (176, 64)),
            (Some(4096), (1_124, 256)),
            (Some(20_000), (10_264, MAX_CALLBACK_CONNECTIONS)),
            (Some(65_536), (46_692, MAX_CALLBACK_CONNECTIONS)),
        ] {
            assert_eq!(connection_capacity(files), connections, "{files:?}");
        }
        let (public, callback) = connection_capacity(None);
        assert!(public > 1 << 40 && callback == MAX_CALLBACK_CONNECTIONS);
    }
}
