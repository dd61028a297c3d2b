//! Writes streamed response bodies.
//!
//! A task beside the request writes, with a short queue in between: a client that does not read holds one chunk for a while,
//! and then only its connection.

use std::io;
use std::time::Duration;

use actix_web::web::Bytes;
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Maximum size of a chunk that is handed over.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Longest wait for a client to take a chunk of a stream; the client may reconnect.
pub(crate) const STREAM_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What ends a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The end of its writer.
    Writer,
    /// [`BodyWriter::finish`]. Otherwise the body ends with an error, which breaks off the transfer.
    Finish,
}

/// The writing end of a response body.
pub(crate) struct BodyWriter {
    parts: mpsc::Sender<BodyPart>,
    write_timeout: Duration,
}

enum BodyPart {
    Bytes(Bytes),
    End,
}

/// Why a body cannot be written to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Disconnected {
    #[error("the client disconnected")]
    Closed,
    #[error("the client read nothing for too long")]
    Stalled,
}

impl BodyWriter {
    /// Creates a writer and the body that it writes to.
    pub(crate) fn new(
        end: BodyEnd,
        write_timeout: Duration,
    ) -> (Self, impl Stream<Item = io::Result<Bytes>>) {
        let (parts, body) = mpsc::channel(1);
        let body = stream::unfold(Some(body), move |body| async move {
            let mut body: mpsc::Receiver<BodyPart> = body?;
            match body.recv().await {
                Some(BodyPart::Bytes(bytes)) => Some((Ok(bytes), Some(body))),
                None if end == BodyEnd::Finish => {
                    let why = "the service is stopping, or reading failed";
                    Some((Err(io::Error::other(why)), None))
                }
                Some(BodyPart::End) | None => None,
            }
        });
        let writer = Self {
            parts,
            write_timeout,
        };
        (writer, body)
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), Disconnected> {
        for piece in bytes.chunks(CHUNK_BYTES) {
            // A copy, so that a chunk that is never read does not keep the whole buffer.
            let piece = Bytes::copy_from_slice(piece);
            self.send_part(BodyPart::Bytes(piece)).await?;
        }
        Ok(())
    }

    pub(crate) async fn finish(&self) -> Result<(), Disconnected> {
        self.send_part(BodyPart::End).await
    }

    async fn send_part(&self, part: BodyPart) -> Result<(), Disconnected> {
        match timeout(self.write_timeout, self.parts.send(part)).await {
            Ok(sent) => sent.map_err(|_| Disconnected::Closed),
            Err(_) => Err(Disconnected::Stalled),
        }
    }

    /// Writes until the end, until the client disconnects, or until its access is refused, even if it reads nothing.
    pub(crate) async fn until_closed(
        &self,
        write: impl Future<Output = Result<(), Disconnected>>,
        refused: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = self.parts.closed() => {}
            () = refused => {}
            // On `Disconnected` there is no client to report to.
            _ = write => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body::{BodyStream, to_bytes};

    use super::*;

    #[actix_web::test]
    async fn only_a_finished_archive_ends_without_an_error() {
        for (end, is_finished, is_complete) in [
            (BodyEnd::Finish, true, true),
            (BodyEnd::Finish, false, false),
            (BodyEnd::Writer, false, true),
        ] {
            let (writer, body) = BodyWriter::new(end, STREAM_WRITE_TIMEOUT);
            let writing = async move {
                writer.send(b"PK").await.unwrap();
                if is_finished {
                    writer.finish().await.unwrap();
                }
            };
            let (read, ()) = futures::join!(to_bytes(BodyStream::new(body)), writing);
            assert_eq!(read.is_ok(), is_complete, "{end:?} {is_finished}");
        }
    }

    #[actix_web::test]
    async fn a_client_that_reads_nothing_is_abandoned() {
        let (writer, body) = BodyWriter::new(BodyEnd::Finish, Duration::from_millis(10));
        let sent = writer.send(&vec![0; 3 * CHUNK_BYTES]).await;
        assert_eq!(sent, Err(Disconnected::Stalled));
        drop(body);
        assert_eq!(writer.finish().await, Err(Disconnected::Closed));
    }
}
