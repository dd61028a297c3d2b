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

use crate::{ForwardError, GatewayLimits, SharedGateway};

/// The client disconnected within the body.
#[derive(Debug, thiserror::Error)]
#[error("the client's body is incomplete")]
pub(crate) struct TruncatedUpload;

/// The body that hyper reads.
pub(crate) enum UploadBody {
    None,
    Some {
        /// An empty chunk marks the end. A channel that closes without it means a truncated body.
        pieces: mpsc::Receiver<Bytes>,
        /// Bytes still to come, if the length is known.
        left: Option<u64>,
    },
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = TruncatedUpload;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedUpload>>> {
        let Self::Some { pieces, left } = &mut *self else {
            return Poll::Ready(None);
        };
        let piece = std::task::ready!(pieces.poll_recv(cx));
        Poll::Ready(match piece {
            None => Some(Err(TruncatedUpload)),
            Some(end) if end.is_empty() => {
                *self = Self::None;
                None
            }
            Some(piece) => {
                *left = left.map(|left| left.saturating_sub(piece.len() as u64));
                Some(Ok(Frame::data(piece)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::None | Self::Some { left: Some(0), .. })
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Some {
                left: Some(left), ..
            } => SizeHint::with_exact(*left),
            Self::Some { left: None, .. } => SizeHint::default(),
        }
    }
}

/// A body of the announced length, and the sender of its chunks.
pub(crate) fn channel(announced: Option<u64>, pieces: usize) -> (mpsc::Sender<Bytes>, UploadBody) {
    let (sender, receiver) = mpsc::channel(pieces.max(1));
    let upload = UploadBody::Some {
        pieces: receiver,
        left: announced,
    };
    (sender, upload)
}

/// Enforces the minimum rate of a client.
struct UploadRate {
    wait: Duration,
    /// Bytes required within that time.
    least: u64,
    /// Time waited since the last time that enough bytes arrived.
    waited: Duration,
    got: u64,
}

impl UploadRate {
    fn of(limits: &GatewayLimits, is_announced: bool) -> Self {
        Self {
            wait: limits.upload_timeout,
            least: if is_announced {
                limits.min_upload_bytes
            } else {
                1
            },
            waited: Duration::ZERO,
            got: 0,
        }
    }

    /// The next chunk. The clock runs only while the service waits for the client.
    async fn next(
        &mut self,
        payload: &mut Payload,
    ) -> Result<Option<Result<Bytes, PayloadError>>, ForwardError> {
        let began = Instant::now();
        let left = self.wait.saturating_sub(self.waited);
        let piece = within(left, payload.next(), ForwardError::UploadStalled).await?;
        self.waited += began.elapsed();
        if let Some(Ok(piece)) = &piece {
            self.got += piece.len() as u64;
        }
        if self.got >= self.least {
            (self.waited, self.got) = (Duration::ZERO, 0);
        }
        Ok(piece)
    }
}

/// Moves the body from the client to the upstream, until its end or until the upstream stops reading.
pub(crate) async fn pump(
    mut payload: Payload,
    is_announced: bool,
    to: mpsc::Sender<Bytes>,
    shared: SharedGateway,
) -> Result<(), ForwardError> {
    let mut pace = UploadRate::of(&shared.limits, is_announced);
    let (idle, most) = (shared.limits.idle_timeout, shared.limits.max_upload_bytes);
    let mut sent: u64 = 0;
    loop {
        let Some(piece) = pace.next(&mut payload).await? else {
            break;
        };
        let piece = piece.map_err(|_| ForwardError::UploadBroken)?;
        if piece.is_empty() {
            continue;
        }
        sent += piece.len() as u64;
        if let Some(most) = most.filter(|most| sent > *most) {
            return Err(ForwardError::TooLarge(most));
        }
        shared.meter.add_bytes_up(piece.len());
        if within(idle, to.send(piece), ForwardError::Silent)
            .await?
            .is_err()
        {
            // The upstream has answered or has disconnected; its response reports both.
            return Ok(());
        }
    }
    let _ = within(idle, to.send(Bytes::new()), ForwardError::Silent).await?;
    Ok(())
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = T>,
    otherwise: ForwardError,
) -> Result<T, ForwardError> {
    timeout(limit, step).await.map_err(|_| otherwise)
}
