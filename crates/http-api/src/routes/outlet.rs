//! The near end of an answer that goes on.
//!
//! What writes to it is a task beside the request, with a short queue in between: so a client that does not read holds one
//! piece for a while, and then nothing but its connection.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use crate::extract::{Actor, Standing};

/// Bytes that are handed over at once.
const CHUNK: usize = 64 * 1024;
/// A client that takes no such piece for this long is given up; it may come back.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for the answer. A store that does not answer revokes nobody.
const ANSWER: Duration = Duration::from_secs(5);

/// The near end of a client's connection.
pub(super) struct Outlet(mpsc::Sender<Bytes>);

/// The client is gone, or does not read.
pub(super) struct Gone;

impl Outlet {
    /// An outlet, and the body of the answer.
    pub(super) fn new() -> (Self, impl Stream<Item = Result<Bytes, Infallible>>) {
        let (out, chunks) = mpsc::channel(1);
        let body = stream::unfold(chunks, |mut chunks: mpsc::Receiver<Bytes>| async move {
            let chunk = chunks.recv().await?;
            Some((Ok(chunk), chunks))
        });
        (Self(out), body)
    }

    pub(super) async fn send(&self, bytes: &[u8]) -> Result<(), Gone> {
        for piece in bytes.chunks(CHUNK) {
            // A copy, so that a piece that is never taken does not keep the whole.
            let sent = self.0.send(Bytes::copy_from_slice(piece));
            timeout(PATIENCE, sent)
                .await
                .map_err(|_| Gone)?
                .map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Writes until the end, or until nobody reads.
    pub(super) async fn until_closed(&self, write: impl Future<Output = Result<(), Gone>>) {
        tokio::select! {
            () = self.0.closed() => {}
            // Gone: then there is nobody to tell.
            _ = write => {}
        }
    }
}

/// Whose answer it is, and how often it is asked whether they may still have it.
pub(super) struct Caller {
    pub(super) actor: Actor,
    pub(super) standing: Standing,
    pub(super) ask_again: Duration,
}

impl Caller {
    /// When to ask.
    pub(super) fn times_to_ask(&self) -> Interval {
        let mut ask = interval_at(Instant::now() + self.ask_again, self.ask_again);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ask
    }

    /// Whether they may not have it any more: their key was revoked, or has expired.
    pub(super) async fn is_refused(&self) -> bool {
        let holds = timeout(ANSWER, self.standing.holds(&self.actor)).await;
        matches!(holds, Ok(Ok(false)))
    }
}
