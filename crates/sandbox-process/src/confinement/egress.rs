//! Hands the connections of a confined sandbox to other machines to the service's forward proxy.
//!
//! The sandbox has no other way out: its network has only the loopback interface. The service holds the listening socket, so
//! it knows which sandbox connects.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

use domain::error::chain;
use domain::id::SandboxId;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use sandbox_provider::EgressSlot;
use tokio::time::sleep;

use crate::confinement::control;
use crate::confinement::plan::PROXY_PORT;

/// Connections of one sandbox at a time; further ones wait in the kernel.
const MAX_CONNECTIONS: usize = 64;
/// As for callbacks: a booting sandbox has no control socket, and a service that is being replaced still listens.
const MIN_RETRY_BACKOFF: Duration = Duration::from_millis(20);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(2);

/// Serves until it is dropped.
pub(crate) async fn serve(control: &Path, id: &SandboxId, gateway: &EgressSlot) -> Infallible {
    let mut backoff = MIN_RETRY_BACKOFF;
    loop {
        if let Err(error) = accept(control, id, gateway, &mut backoff).await {
            tracing::debug!(sandbox.id = %id, error = %chain(&error), "cannot accept connections of sandbox {id} to other machines yet");
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_RETRY_BACKOFF);
    }
}

/// Accepts and serves connections until the listener fails.
async fn accept(
    control: &Path,
    id: &SandboxId,
    gateway: &EgressSlot,
    backoff: &mut Duration,
) -> io::Result<()> {
    // Without a gateway, clients find no listener, and the next attempt is soon.
    let gateway = gateway.get().ok_or(io::ErrorKind::NotConnected)?;
    let listener = control::listen_at(control, PROXY_PORT)
        .await?
        .ok_or(io::ErrorKind::NotFound)?;
    *backoff = MIN_RETRY_BACKOFF;
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                connections.push(gateway.serve(id, accepted?.0));
            }
            Some(()) = connections.next() => {}
        }
    }
}
