//! Writes streamed response bodies.
//!
//! A task beside the request writes, with a short queue in between: a client that does not read holds one chunk for a while,
//! and then only its connection.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Largest chunk that is handed over at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Longest wait for a client to take a chunk; the client may reconnect.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The writing end of a response body.
pub(crate) struct BodyWriter(mpsc::Sender<Bytes>);

/// The client has disconnected, or does not read.
pub(crate) struct Disconnected;

impl BodyWriter {
    /// Creates a writer and the body that it writes to.
    pub(crate) fn new() -> (Self, impl Stream<Item = Result<Bytes, Infallible>>) {
        let (out, chunks) = mpsc::channel(1);
        let body = stream::unfold(chunks, |mut chunks: mpsc::Receiver<Bytes>| async move {
            let chunk = chunks.recv().await?;
            Some((Ok(chunk), chunks))
        });
        (Self(out), body)
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), Disconnected> {
        for piece in bytes.chunks(CHUNK_BYTES) {
            // A copy, so that a chunk that is never read does not keep the whole buffer.
            let sent = self.0.send(Bytes::copy_from_slice(piece));
            timeout(WRITE_TIMEOUT, sent)
                .await
                .map_err(|_| Disconnected)?
                .map_err(|_| Disconnected)?;
        }
        Ok(())
    }

    /// Writes until the end, until the client disconnects, or until its access is refused, even if it reads nothing.
    pub(crate) async fn until_closed(
        &self,
        write: impl Future<Output = Result<(), Disconnected>>,
        refused: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = self.0.closed() => {}
            () = refused => {}
            // On `Disconnected` there is no client to report to.
            _ = write => {}
        }
    }
}
