//! The request body on its way to the upstream.
//!
//! Actix's payload stays on its thread, and hyper requires a `Send` body: a short channel connects the two.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures::StreamExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout};

use crate::error::ForwardError;
use crate::limits::GatewayLimits;
use crate::shared::SharedGateway;

/// The client disconnected within the body.
#[derive(Debug, thiserror::Error)]
#[error("the client's body is incomplete")]
pub(crate) struct TruncatedUpload;

/// The body that hyper reads.
pub(crate) enum UploadBody {
    Empty,
    Streaming {
        /// An empty chunk marks the end. A channel that closes without it means a truncated body.
        chunks: mpsc::Receiver<Bytes>,
        /// Bytes still to come, if the length is known.
        remaining_bytes: Option<u64>,
    },
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = TruncatedUpload;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedUpload>>> {
        let Self::Streaming {
            chunks,
            remaining_bytes,
        } = &mut *self
        else {
            return Poll::Ready(None);
        };
        let piece = std::task::ready!(chunks.poll_recv(cx));
        Poll::Ready(match piece {
            None => Some(Err(TruncatedUpload)),
            Some(end) if end.is_empty() => {
                *self = Self::Empty;
                None
            }
            Some(piece) => {
                *remaining_bytes = remaining_bytes
                    .map(|remaining_bytes| remaining_bytes.saturating_sub(piece.len() as u64));
                Some(Ok(Frame::data(piece)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::Streaming {
                    remaining_bytes: Some(0),
                    ..
                }
        )
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming {
                remaining_bytes: Some(remaining_bytes),
                ..
            } => SizeHint::with_exact(*remaining_bytes),
            Self::Streaming {
                remaining_bytes: None,
                ..
            } => SizeHint::default(),
        }
    }
}

/// A body of the given length, and the sender of its chunks.
pub(crate) fn channel(
    content_length: Option<u64>,
    capacity: usize,
) -> (mpsc::Sender<Bytes>, UploadBody) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let upload = UploadBody::Streaming {
        chunks: receiver,
        remaining_bytes: content_length,
    };
    (sender, upload)
}

/// Enforces the minimum rate of a client.
struct UploadRate {
    timeout: Duration,
    /// Bytes required within `timeout`.
    min_bytes: u64,
    /// Time waited, and bytes received, since `min_bytes` arrived last.
    waited: Duration,
    received: u64,
}

impl UploadRate {
    fn of(limits: &GatewayLimits, has_content_length: bool) -> Self {
        Self {
            timeout: limits.upload_timeout,
            min_bytes: if has_content_length {
                limits.min_upload_bytes
            } else {
                1
            },
            waited: Duration::ZERO,
            received: 0,
        }
    }

    /// The next chunk. The clock runs only while the service waits for the client.
    async fn next(
        &mut self,
        payload: &mut Payload,
    ) -> Result<Option<Result<Bytes, PayloadError>>, ForwardError> {
        let started = Instant::now();
        let left = self.timeout.saturating_sub(self.waited);
        let piece = with_timeout(left, payload.next(), ForwardError::UploadStalled).await?;
        self.waited += started.elapsed();
        if let Some(Ok(piece)) = &piece {
            self.received += piece.len() as u64;
        }
        if self.received >= self.min_bytes {
            (self.waited, self.received) = (Duration::ZERO, 0);
        }
        Ok(piece)
    }
}

/// Moves the body from the client to the upstream, until its end or until the upstream stops reading.
pub(crate) async fn copy_body(
    mut payload: Payload,
    has_content_length: bool,
    to: mpsc::Sender<Bytes>,
    shared: SharedGateway,
) -> Result<(), ForwardError> {
    let mut rate = UploadRate::of(&shared.limits, has_content_length);
    let (idle, max) = (shared.limits.idle_timeout, shared.limits.max_upload_bytes);
    let mut sent: u64 = 0;
    loop {
        let Some(piece) = rate.next(&mut payload).await? else {
            break;
        };
        let piece = piece.map_err(|_| ForwardError::UploadDisconnected)?;
        if piece.is_empty() {
            continue;
        }
        sent += piece.len() as u64;
        if let Some(max) = max.filter(|max| sent > *max) {
            return Err(ForwardError::TooLarge(max));
        }
        shared.meter.add_bytes_up(piece.len());
        if with_timeout(idle, to.send(piece), ForwardError::UpstreamTimedOut)
            .await?
            .is_err()
        {
            // The upstream has responded or has disconnected. The result of the exchange reports both.
            return Ok(());
        }
    }
    let _ = with_timeout(idle, to.send(Bytes::new()), ForwardError::UpstreamTimedOut).await?;
    Ok(())
}

async fn with_timeout<T>(
    limit: Duration,
    future: impl Future<Output = T>,
    timeout_error: ForwardError,
) -> Result<T, ForwardError> {
    timeout(limit, future).await.map_err(|_| timeout_error)
}
