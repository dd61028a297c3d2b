//! The body of a request on its way to the server behind.
//!
//! Actix hands it over on its own thread only, hyper wants something that could travel: a short channel is between them.

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

/// The client broke off.
#[derive(Debug, thiserror::Error)]
#[error("the client's body has no end")]
pub(crate) struct TruncatedUpload;

/// What hyper reads.
pub(crate) enum UploadBody {
    None,
    Some {
        /// An empty piece is the end; without it the body was cut.
        pieces: mpsc::Receiver<Bytes>,
        /// What is still to come, where that was announced.
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

/// A body as it was announced, and where to put its pieces.
pub(crate) fn channel(announced: Option<u64>, pieces: usize) -> (mpsc::Sender<Bytes>, UploadBody) {
    let (sender, receiver) = mpsc::channel(pieces.max(1));
    let upload = UploadBody::Some {
        pieces: receiver,
        left: announced,
    };
    (sender, upload)
}

/// How fast a client has to send.
struct UploadRate {
    wait: Duration,
    /// Bytes in that time.
    least: u64,
    /// Of this time, since so many bytes were there last.
    waited: Duration,
    got: u64,
}

impl UploadRate {
    fn of(limits: &GatewayLimits, is_announced: bool) -> Self {
        Self {
            wait: limits.upload_timeout,
            least: if is_announced { limits.min_upload_bytes } else { 1 },
            waited: Duration::ZERO,
            got: 0,
        }
    }

    /// The next piece. Only while somebody waits for one does the clock go.
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

/// Moves the body from the client to the server behind, until its end or until that one takes no more of it.
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
            // It has answered, or is gone: both are said by its answer.
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
