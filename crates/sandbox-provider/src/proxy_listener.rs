//! Hands connections of sandboxes to the service's forward proxy, where a source address says which sandbox sends.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::error::{BoxError, chain};
use domain::id::SandboxId;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::{BackendTasks, EgressSlot};

/// Connections of all sandboxes, and of one. The proxy has tighter limits, and lets some wait.
const MAX_CONNECTIONS: usize = 4_096;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 256;
/// Connections that wait for `accept`.
const BACKLOG: u32 = 1_024;
/// Attempts to find the sandbox with an address. A backend knows it a little later than its first program runs.
const MAX_LOOKUPS: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How often the service is asked whether it has its proxy yet.
const SERVICE_INTERVAL: Duration = Duration::from_millis(50);

/// Capabilities with which a program sends from addresses of others.
const FORGING_CAPABILITIES: [&str; 3] = ["NET_ADMIN", "NET_RAW", "SYS_ADMIN"];

/// Says which sandbox has an address.
#[async_trait]
pub trait SandboxAddresses: Send + Sync + 'static {
    /// The running sandbox with this address. `None`: it is no sandbox's, or not known yet.
    ///
    /// # Errors
    /// The backend cannot tell.
    async fn sandbox_at(&self, address: IpAddr) -> Result<Option<SandboxId>, BoxError>;
}

/// Whether programs with these capabilities could use the proxy in the name of another sandbox.
pub fn can_forge_addresses(capabilities: &[String]) -> bool {
    let mut all = capabilities.iter().map(String::as_str);
    all.any(|name| FORGING_CAPABILITIES.contains(&name))
}

/// A listener at an address of this machine, beside those of other processes of the installation.
///
/// # Errors
/// The address is not this machine's, or another program uses it.
pub fn listen_for_sandboxes(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Hands the connections of a listener to the gateway, once the service has set it. Never returns.
pub async fn accept_for_gateway(
    listener: TcpListener,
    gateway: EgressSlot,
    sandboxes: Arc<dyn SandboxAddresses>,
    tasks: BackendTasks,
) -> Infallible {
    while gateway.get().is_none() {
        sleep(SERVICE_INTERVAL).await;
    }
    let connections = Arc::new(ProxyConnections::default());
    let has_warned = Arc::new(AtomicBool::new(false));
    loop {
        let (stream, peer) = match listener.accept().await {
            // A listener for IPv4 and IPv6 sees addresses of the former within the latter.
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot accept connections of sandboxes");
                sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        // Without a place, the client sees a closed connection.
        if let Some(place) = connections.take(peer) {
            let (gateway, sandboxes) = (Arc::clone(&gateway), Arc::clone(&sandboxes));
            let has_warned = Arc::clone(&has_warned);
            tasks.spawn(async move {
                let is_served = serve(&gateway, sandboxes.as_ref(), stream, peer).await;
                if !is_served && !has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%peer, "closed a connection to the forward proxy from an address of no sandbox; the log has the first such \
                        address only: if sandboxes reach no other machine, the network between them and the service hides theirs");
                }
                drop(place);
            });
        }
    }
}

/// Returns `false` for a connection of no sandbox that sends something.
async fn serve(
    gateway: &EgressSlot,
    sandboxes: &dyn SandboxAddresses,
    stream: TcpStream,
    peer: IpAddr,
) -> bool {
    for _ in 0..MAX_LOOKUPS {
        match (gateway.get(), sandboxes.sandbox_at(peer).await) {
            (Some(gateway), Ok(Some(id))) => {
                gateway.serve(&id, stream).await;
                return true;
            }
            (_, Ok(_)) => sleep(RETRY_INTERVAL).await,
            (_, Err(error)) => {
                tracing::warn!(error = %chain(&*error), "cannot find out which sandbox connects to the forward proxy");
                return true;
            }
        }
    }
    // `doctor` only connects.
    let first = timeout(RETRY_INTERVAL, stream.peek(&mut [0])).await;
    !matches!(first, Ok(Ok(1..)))
}

/// Open connections by address.
#[derive(Debug, Default)]
struct ProxyConnections(Mutex<HashMap<IpAddr, usize>>);

/// One of them.
struct ConnectionPlace {
    all: Arc<ProxyConnections>,
    address: IpAddr,
}

impl ProxyConnections {
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPlace> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.get(&address).copied().unwrap_or_default();
        if counts.values().sum::<usize>() >= MAX_CONNECTIONS || own >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        counts.insert(address, own + 1);
        let all = Arc::clone(self);
        Some(ConnectionPlace { all, address })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_forge_addresses_are_known() {
        for (name, expected) in [("NET_RAW", true), ("NET_ADMIN", true), ("CHOWN", false)] {
            let all = ["KILL".to_owned(), name.to_owned()];
            assert_eq!(can_forge_addresses(&all), expected, "{name}");
        }
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let connections = Arc::new(ProxyConnections::default());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut places: Vec<_> = (0..MAX_CONNECTIONS_PER_ADDRESS)
            .map(|_| connections.take(one).expect("a place"))
            .collect();
        assert!(connections.take(one).is_none());
        let of_other = connections.take(other).expect("a place");
        places.pop();
        assert!(connections.take(one).is_some());
        drop((places, of_other));
        assert!(connections.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn two_processes_of_an_installation_listen_at_one_address() {
        let first = listen_for_sandboxes(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen_for_sandboxes(first.local_addr().unwrap()).unwrap();
    }
}
