//! The body of an answer on its way to the client.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use futures::future::LocalBoxFuture;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, Sleep, sleep};

use crate::limits::{Kind, Place};
use crate::{Failure, Shared};

/// A place that is counted as long as it is taken.
pub(crate) struct Counted {
    pub(crate) shared: Shared,
    kind: Kind,
    _place: Place,
}

impl Counted {
    pub(crate) fn take(shared: &Shared, kind: Kind, lane: &str) -> Result<Self, Failure> {
        let place = shared.places.take(kind, lane)?;
        shared.meter.opened(kind);
        Ok(Self {
            shared: shared.clone(),
            kind,
            _place: place,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.meter.closed(self.kind);
    }
}

/// What is left of an upload whose answer has begun.
pub(crate) type Rest = LocalBoxFuture<'static, Result<(), Failure>>;

/// What actix reads. Dropped when the client leaves, and the connection behind with it.
pub(crate) struct Download {
    pub(crate) body: Incoming,
    pub(crate) size: BodySize,
    pub(crate) rest: Option<Rest>,
    pub(crate) counted: Counted,
    idle: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Download {
    pub(crate) fn new(
        body: Incoming,
        size: BodySize,
        rest: Option<Rest>,
        counted: Counted,
    ) -> Self {
        let idle = Box::pin(sleep(counted.shared.limits.idle));
        Self {
            body,
            size,
            rest,
            counted,
            idle,
            is_waiting: false,
        }
    }

    /// An answer that is cut shows the client that it is not whole.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(rest) = &mut self.rest
            && let Poll::Ready(done) = rest.as_mut().poll(cx)
        {
            self.rest = None;
            if let Err(failure) = done {
                return Poll::Ready(Some(Err(failure)));
            }
        }
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => Poll::Ready(Some(Ok(piece))),
                    // Trailers end here.
                    _ => continue,
                },
                Poll::Ready(Some(Err(error))) => {
                    Poll::Ready(Some(Err(Failure::Broken(error.into()))))
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

impl MessageBody for Download {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(piece) = this.poll_piece(cx) {
            this.is_waiting = false;
            return Poll::Ready(piece.map(|piece| {
                let piece = piece.inspect(|piece| this.counted.shared.meter.down(piece.len()));
                piece.map_err(|failure| {
                    tracing::warn!(%failure, cause = ?failure.source(), "a forwarded answer was cut");
                    failure.into()
                })
            }));
        }
        // Only while the server behind is waited for; a slow client is no fault of its.
        if !this.is_waiting {
            this.is_waiting = true;
            let until = Instant::now() + this.counted.shared.limits.idle;
            this.idle.as_mut().reset(until);
        }
        std::task::ready!(this.idle.as_mut().poll(cx));
        tracing::warn!("a forwarded answer was cut: nothing came for too long");
        Poll::Ready(Some(Err(Failure::Silent.into())))
    }
}
