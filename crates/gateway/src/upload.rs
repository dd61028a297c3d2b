//! The body of a request on its way to the server behind.
//!
//! Actix hands it over on its own thread only, hyper wants something that could travel: a short channel is between them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::web::Bytes;
use futures::StreamExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{Failure, Shared};

/// The client broke off.
#[derive(Debug, thiserror::Error)]
#[error("the client's body has no end")]
pub(crate) struct Cut;

/// What hyper reads.
pub(crate) enum Upload {
    None,
    Some {
        /// An empty piece is the end; without it the body was cut.
        pieces: mpsc::Receiver<Bytes>,
        /// What is still to come, where that was announced.
        left: Option<u64>,
    },
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Self::Some { pieces, left } = &mut *self else {
            return Poll::Ready(None);
        };
        let piece = std::task::ready!(pieces.poll_recv(cx));
        Poll::Ready(match piece {
            None => Some(Err(Cut)),
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
pub(crate) fn channel(announced: Option<u64>, pieces: usize) -> (mpsc::Sender<Bytes>, Upload) {
    let (sender, receiver) = mpsc::channel(pieces.max(1));
    let upload = Upload::Some {
        pieces: receiver,
        left: announced,
    };
    (sender, upload)
}

/// Moves the body from the client to the server behind, until its end or until that one takes no more of it.
pub(crate) async fn pump(
    mut payload: Payload,
    to: mpsc::Sender<Bytes>,
    shared: Shared,
) -> Result<(), Failure> {
    let (idle, most) = (shared.limits.idle, shared.limits.upload);
    let mut sent: u64 = 0;
    loop {
        let piece = within(idle, payload.next(), Failure::UploadStalled).await?;
        let Some(piece) = piece else { break };
        let piece = piece.map_err(|_| Failure::UploadBroken)?;
        if piece.is_empty() {
            continue;
        }
        sent += piece.len() as u64;
        if let Some(most) = most.filter(|most| sent > *most) {
            return Err(Failure::TooLarge(most));
        }
        shared.meter.up(piece.len());
        if within(idle, to.send(piece), Failure::Silent)
            .await?
            .is_err()
        {
            // It has answered, or is gone: both are said by its answer.
            return Ok(());
        }
    }
    let _ = within(idle, to.send(Bytes::new()), Failure::Silent).await?;
    Ok(())
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = T>,
    otherwise: Failure,
) -> Result<T, Failure> {
    timeout(limit, step).await.map_err(|_| otherwise)
}
