//! Forwards the callbacks of a confined sandbox to the service's listener for callbacks.
//!
//! The agent server connects to an address of its own network, where init made a listening socket that the service holds.
//! So no process relays, no port of the machine is reachable from inside, and only the service decides where bytes go.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use domain::error::chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::confinement::control;
use crate::confinement::plan::CALLBACK_PORT;

/// Connections of one sandbox at a time; further ones wait in the kernel.
const MAX_CONNECTIONS: usize = 32;
/// A booting sandbox has no control socket for some milliseconds, and a service that is being replaced still listens.
const MIN_RETRY_BACKOFF: Duration = Duration::from_millis(20);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards until it is dropped.
pub(crate) async fn forward(control: &Path, target: &OnceLock<SocketAddr>) -> Infallible {
    let mut backoff = MIN_RETRY_BACKOFF;
    loop {
        if let Err(error) = accept(control, target, &mut backoff).await {
            tracing::debug!(error = %chain(&error), "cannot accept callbacks of a sandbox yet");
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_RETRY_BACKOFF);
    }
}

/// Accepts and forwards connections until the listener fails.
async fn accept(
    control: &Path,
    target: &OnceLock<SocketAddr>,
    backoff: &mut Duration,
) -> io::Result<()> {
    let listener = control::listen_at(control, CALLBACK_PORT)
        .await?
        .ok_or(io::ErrorKind::NotFound)?;
    *backoff = MIN_RETRY_BACKOFF;
    let mut relays = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if relays.len() < MAX_CONNECTIONS => {
                relays.push(relay(accepted?.0, target));
            }
            Some(ended) = relays.next() => {
                // The agent server repeats what it cannot deliver.
                if let Err(error) = ended {
                    tracing::debug!(error = %chain(&error), "a callback connection of a sandbox failed");
                }
            }
        }
    }
}

async fn relay(mut stream: TcpStream, target: &OnceLock<SocketAddr>) -> io::Result<()> {
    // The agent server sees a closed connection, and tries again.
    let address = target.get().ok_or(io::ErrorKind::NotConnected)?;
    let mut service = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    copy_bidirectional(&mut stream, &mut service).await?;
    Ok(())
}
