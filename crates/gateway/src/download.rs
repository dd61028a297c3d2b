//! The body of a response on its way to the client.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use futures::future::{Fuse, LocalBoxFuture};
use futures::{FutureExt, StreamExt};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ForwardError;
use crate::limits::ForwardSlot;
use crate::revocation::Revocation;
use crate::shared::SharedGateway;
use crate::tasks::spawn_body_task;

/// The rest of an upload whose response has started.
pub(crate) type PendingUpload = LocalBoxFuture<'static, Result<(), ForwardError>>;

/// The response body that actix polls. Actix drops it when the client disconnects; the upstream connection is dropped with
/// it.
///
/// Actix does not poll while the client reads nothing. A task with its own timer therefore reads from the upstream: after
/// the idle time-out a client that does not read keeps only its own connection, not the slot and the upstream connection.
pub(crate) struct DownloadBody {
    /// The part that arrived with the head.
    first: Option<Bytes>,
    /// An empty chunk marks the end. A channel that closes without it means a truncated response.
    pieces: mpsc::Receiver<Result<Bytes, ForwardError>>,
    size: BodySize,
    _task: AbortOnDropHandle<()>,
}

impl DownloadBody {
    pub(crate) fn new(
        first: Option<Bytes>,
        size: BodySize,
        task: DownloadTask,
        end: Revocation,
    ) -> Self {
        let (to, pieces) = mpsc::channel(1);
        // Dropping the task truncates the response on both sides, so the client notices that it is incomplete.
        let work = async move {
            tokio::select! {
                biased;
                () = end => tracing::info!(
                    "forwarded response truncated: the caller's key is no longer valid, or the sandbox no longer runs"
                ),
                () = task.run(to) => {}
            }
        };
        Self {
            first,
            pieces,
            size,
            _task: spawn_body_task(work),
        }
    }
}

impl MessageBody for DownloadBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Poll::Ready(match ready!(self.pieces.poll_recv(cx)) {
            Some(Ok(end_marker)) if end_marker.is_empty() => None,
            Some(piece) => Some(piece.map_err(Into::into)),
            None => Some(Err("the response was truncated".into())),
        })
    }
}

/// Reads the upstream body and passes it to [`DownloadBody`].
pub(crate) struct DownloadTask {
    pub(crate) shared: SharedGateway,
    pub(crate) body: BodyDataStream<Incoming>,
    pub(crate) rest: Option<PendingUpload>,
    pub(crate) _slot: ForwardSlot,
}

impl DownloadTask {
    async fn run(mut self, to: mpsc::Sender<Result<Bytes, ForwardError>>) {
        let idle_timeout = self.shared.limits.idle_timeout;
        let mut rest = self
            .rest
            .take()
            .map_or_else(Fuse::terminated, FutureExt::fuse);
        loop {
            let next = timeout(idle_timeout, next_piece(&mut self.body, &mut rest)).await;
            let piece = next.unwrap_or(Err(ForwardError::UpstreamTimedOut));
            if let Err(failure) = &piece {
                tracing::warn!(error = %chain(failure), "forwarded response truncated: the sandbox's server failed");
            }
            let size = piece.as_ref().map_or(0, Bytes::len);
            match timeout(idle_timeout, to.send(piece)).await {
                Ok(Ok(())) => self.shared.meter.add_bytes_down(size),
                Ok(Err(_)) => return,
                Err(_) => {
                    tracing::warn!(
                        "forwarded response truncated: the client read nothing for {idle_timeout:?}"
                    );
                    return;
                }
            }
            if size == 0 {
                return;
            }
        }
    }
}

/// The next chunk of the response, empty at its end. Continues the upload meanwhile, whose failure fails the response.
async fn next_piece(
    body: &mut BodyDataStream<Incoming>,
    rest: &mut Fuse<PendingUpload>,
) -> Result<Bytes, ForwardError> {
    loop {
        let piece = tokio::select! {
            biased;
            Err(failure) = &mut *rest => return Err(failure),
            piece = body.next() => piece,
        };
        match piece {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(piece) => {
                return piece.map_err(|error| ForwardError::UpstreamDisconnected(error.into()));
            }
            None => return Ok(Bytes::new()),
        }
    }
}

/// The error, followed by its causes, outermost first. For the log.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
