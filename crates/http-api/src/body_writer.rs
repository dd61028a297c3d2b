//! The near end of an answer that goes on.
//!
//! What writes to it is a task beside the request, with a short queue in between: so a client that does not read holds one
//! piece for a while, and then nothing but its connection.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Bytes that are handed over at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// A client that takes no such piece for this long is given up; it may come back.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The near end of a client's connection.
pub(crate) struct BodyWriter(mpsc::Sender<Bytes>);

/// The client is gone, or does not read.
pub(crate) struct Disconnected;

impl BodyWriter {
    /// An outlet, and the body of the answer.
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
            // A copy, so that a piece that is never taken does not keep the whole.
            let sent = self.0.send(Bytes::copy_from_slice(piece));
            timeout(WRITE_TIMEOUT, sent)
                .await
                .map_err(|_| Disconnected)?
                .map_err(|_| Disconnected)?;
        }
        Ok(())
    }

    /// Writes until the end, until the client is gone, or until it may not have more (`refused`), also if it reads nothing.
    pub(crate) async fn until_closed(
        &self,
        write: impl Future<Output = Result<(), Disconnected>>,
        refused: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = self.0.closed() => {}
            () = refused => {}
            // Gone: then there is nobody to tell.
            _ = write => {}
        }
    }
}
