//! Connections as the kernel has them: which sockets are kept, how silent ones are noticed, and how one is cut.
//!
//! A client that takes nothing is found by the kernel (`TCP_USER_TIMEOUT`): what was sent and is not acknowledged, or waits
//! behind a closed window, for longer than that breaks the connection. Actix has no deadline for it. What the answer holds
//! goes with the connection.

use std::any::Any;
use std::os::fd::AsFd;
use std::time::Duration;

use actix_web::dev::Extensions;
use domain::error::chain;
use http_api::{ConnectionLimits, Connections, Door};
use rustix::net::{Shutdown, shutdown, sockopt};
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

use crate::config::Http;

/// Slowest request head.
pub(crate) const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Idle connections are kept longer than proxies keep theirs (60 s), so that it is never us who closes first.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// The same behind the door for sandboxes.
const SANDBOX_KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Connections behind the door for sandboxes, and of one sandbox: one that hoards them must not cost the service its file
/// descriptors, nor other sandboxes their reports.
const OF_SANDBOXES: usize = 1024;
const OF_ONE_SANDBOX: usize = 64;
/// Connections behind the door for operators, which have some scrapers. Their descriptors are among [`OTHER_FILES`].
const OF_OPERATORS: usize = 64;
/// How long a silent peer is left alone before it is asked whether it is there, and between two questions.
const ASK_AFTER: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_secs(15);
/// File descriptors for everything else: the database, engines, files.
const OTHER_FILES: u64 = 1024;
/// Descriptors of one connection: two of its own, and one to a sandbox, if what comes over it is forwarded.
const OF_ONE: u64 = 3;
/// Where sandboxes come, nothing is forwarded.
const OF_A_SANDBOXS: u64 = 2;

/// What one listener does with connections.
#[derive(Clone)]
pub(crate) struct Reception {
    pub(crate) connections: Connections,
    pub(crate) keep_alive: Duration,
    /// Connections of one worker, should ours not be noticed to be ended as fast as they are.
    pub(crate) most_of_worker: usize,
    send_timeout: Duration,
}

impl Reception {
    pub(crate) fn new(http: &Http, door: Door) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let (of_everybody, of_sandboxes) = possible(files);
        let (most, possible, per_address, keep_alive) = match door {
            Door::Everybody => {
                let (most, per_address) = (http.max_connections, http.max_connections_per_address);
                (most, of_everybody, per_address, KEEP_ALIVE)
            }
            Door::Sandboxes => {
                let keep_alive = SANDBOX_KEEP_ALIVE;
                (OF_SANDBOXES, of_sandboxes, OF_ONE_SANDBOX, keep_alive)
            }
            Door::Operators => (OF_OPERATORS, OF_OPERATORS, 0, KEEP_ALIVE),
        };
        let trusted = match door {
            Door::Everybody => http.trusted_proxies.clone(),
            // Nobody stands for others there: sandboxes may be in a network that was named for a proxy's sake.
            Door::Sandboxes | Door::Operators => Vec::new(),
        };
        if most > possible {
            tracing::info!(
                "the limit of open files ({}) allows {possible} connections, not {most}: raise it (LimitNOFILE of systemd, \
                 ulimits of a container)",
                files.unwrap_or(u64::MAX)
            );
        }
        let most = most.min(possible);
        Self {
            connections: Connections::new(ConnectionLimits {
                most,
                per_address,
                idle: keep_alive + HEAD_LIMIT,
                trusted,
            }),
            keep_alive,
            most_of_worker: 2 * most,
            send_timeout: http.send_timeout,
        }
    }

    /// Called for each new connection; what it leaves there lives as long as that does.
    pub(crate) fn receive(&self, io: &dyn Any, data: &mut Extensions) {
        let Some(stream) = io.downcast_ref::<TcpStream>() else {
            return;
        };
        if let Err(error) = self.tune(stream) {
            tracing::debug!(error = %chain(&error), "a connection is used as it is");
        }
        // A second descriptor of the same socket: actix keeps the first one to itself.
        let other = stream.as_fd().try_clone_to_owned();
        let (Ok(peer), Ok(other)) = (stream.peer_addr(), other) else {
            // Gone already, or there are no more descriptors.
            let _ = shutdown(stream, Shutdown::Both);
            return;
        };
        let end = move || {
            // It fails if the client was faster.
            let _ = shutdown(&other, Shutdown::Both);
        };
        data.insert(self.connections.accept(peer.ip(), end));
    }

    fn tune(&self, stream: &TcpStream) -> rustix::io::Result<()> {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
        sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
        let millis = u32::try_from(self.send_timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, millis)
    }
}

/// Connections of everybody, and of sandboxes, that fit together into so many open files, beside what else there is to do.
fn possible(files: Option<u64>) -> (usize, usize) {
    let files = files.unwrap_or(u64::MAX);
    let of_sandboxes = (OF_SANDBOXES as u64).min(files / 16);
    let for_everybody = files - OTHER_FILES.min(files / 2) - OF_A_SANDBOXS * of_sandboxes;
    let count = |it| usize::try_from(it).unwrap_or(usize::MAX);
    (count(for_everybody / OF_ONE), count(of_sandboxes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_bound_connections() {
        for (files, connections) in [
            (Some(1024), (128, 64)),
            (Some(4096), (853, 256)),
            (Some(65_536), (20_821, OF_SANDBOXES)),
        ] {
            assert_eq!(possible(files), connections, "{files:?}");
        }
        let (of_everybody, of_sandboxes) = possible(None);
        assert!(of_everybody > 1 << 40 && of_sandboxes == OF_SANDBOXES);
    }
}
