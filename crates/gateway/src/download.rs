//! The body of a response on its way to the client.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use futures::future::LocalBoxFuture;
use hyper::body::{Body as _, Incoming};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::ForwardError;
use crate::limits::{ForwardSlot, TrafficKind};
use crate::revocation::Revocation;
use crate::shared::SharedGateway;
use crate::target::ForwardTarget;
use crate::tasks::BodyTask;
use crate::upstream::ConnectionLease;

/// A slot with its gauge: the gauge falls when the slot is released.
pub(crate) struct MeteredSlot {
    pub(crate) shared: SharedGateway,
    kind: TrafficKind,
    _slot: ForwardSlot,
}

impl MeteredSlot {
    pub(crate) fn take(
        shared: &SharedGateway,
        kind: TrafficKind,
        target: &ForwardTarget,
    ) -> Result<Self, ForwardError> {
        let slot = shared.slots.take(kind, target)?;
        shared.meter.record_opened(kind);
        Ok(Self {
            shared: shared.clone(),
            kind,
            _slot: slot,
        })
    }
}

impl Drop for MeteredSlot {
    fn drop(&mut self) {
        self.shared.meter.record_closed(self.kind);
    }
}

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
    _task: BodyTask,
}

impl DownloadBody {
    pub(crate) fn new(
        first: Option<Bytes>,
        (body, lease): (Incoming, ConnectionLease),
        size: BodySize,
        rest: Option<PendingUpload>,
        slot: MeteredSlot,
        end: Revocation,
    ) -> Self {
        let (to, pieces) = mpsc::channel(1);
        let task = DownloadTask {
            body,
            _lease: lease,
            rest,
            slot,
        };
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
            _task: BodyTask::spawn(work),
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

/// The first chunk of a body, if it arrived with the head. Registers no waker.
pub(crate) fn poll_first_piece(body: &mut Incoming) -> Result<Option<Bytes>, ForwardError> {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut cx) {
        Poll::Ready(Some(Ok(frame))) => Ok(frame.into_data().ok().filter(|data| !data.is_empty())),
        Poll::Ready(Some(Err(error))) => Err(ForwardError::Broken(error.into())),
        // The next poll reports the end again.
        Poll::Ready(None) | Poll::Pending => Ok(None),
    }
}

/// Reads the upstream body and passes it to [`DownloadBody`].
struct DownloadTask {
    body: Incoming,
    _lease: ConnectionLease,
    rest: Option<PendingUpload>,
    slot: MeteredSlot,
}

impl DownloadTask {
    async fn run(mut self, to: mpsc::Sender<Result<Bytes, ForwardError>>) {
        let shared = self.slot.shared.clone();
        let idle_timeout = shared.limits.idle_timeout;
        loop {
            let next = timeout(idle_timeout, poll_fn(|cx| self.poll_piece(cx))).await;
            let piece = next.unwrap_or(Some(Err(ForwardError::Silent)));
            let piece = piece.unwrap_or(Ok(Bytes::new()));
            if let Err(failure) = &piece {
                tracing::warn!(%failure, cause = ?failure.source(), "forwarded response truncated: the sandbox's server failed");
            }
            let size = piece.as_ref().map_or(0, Bytes::len);
            match timeout(idle_timeout, to.send(piece)).await {
                Ok(Ok(())) => shared.meter.add_bytes_down(size),
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

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ForwardError>>> {
        if let Some(rest) = &mut self.rest
            && let Poll::Ready(result) = rest.as_mut().poll(cx)
        {
            self.rest = None;
            if let Err(failure) = result {
                return Poll::Ready(Some(Err(failure)));
            }
        }
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => Poll::Ready(Some(Ok(piece))),
                    // Trailers are not forwarded.
                    _ => continue,
                },
                Poll::Ready(Some(Err(error))) => {
                    Poll::Ready(Some(Err(ForwardError::Broken(error.into()))))
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}
