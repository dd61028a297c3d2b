//! Bodies that pass through the service, in either direction.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, stream};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use outbound_http::{RequestSlot, next_chunk};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Chunks of a request that wait for the endpoint.
const WAITING_CHUNKS: usize = 2;

/// The caller ended its request early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request is incomplete")]
pub struct IncompleteBody;

/// The body of a call, which is sent as it comes.
#[derive(Debug)]
pub struct CallBody {
    chunks: mpsc::Receiver<Bytes>,
    /// What was read before it is sent.
    ahead: Vec<u8>,
    remaining: Option<u64>,
    is_complete: bool,
}

impl CallBody {
    /// A body of the announced length, and where its chunks go. An empty chunk ends it; without that it is incomplete.
    pub fn channel(length: Option<u64>) -> (mpsc::Sender<Bytes>, Self) {
        let (sender, chunks) = mpsc::channel(WAITING_CHUNKS);
        let body = Self {
            chunks,
            ahead: Vec::new(),
            remaining: length,
            is_complete: length == Some(0),
        };
        (sender, body)
    }

    /// What was read ahead. It is sent first.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads the next chunk ahead; `false` at the end.
    pub(crate) async fn read_ahead(&mut self) -> Result<bool, IncompleteBody> {
        let Some(chunk) = self.next_chunk().await? else {
            return Ok(false);
        };
        self.ahead.extend_from_slice(&chunk);
        Ok(true)
    }

    /// Reads the rest and drops it.
    pub(crate) async fn discard(mut self) -> Result<(), IncompleteBody> {
        while self.next_chunk().await?.is_some() {}
        Ok(())
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, IncompleteBody> {
        if self.is_complete {
            return Ok(None);
        }
        let chunk = self.chunks.recv().await.ok_or(IncompleteBody)?;
        self.is_complete = chunk.is_empty();
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = IncompleteBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        let chunk = if !self.ahead.is_empty() {
            Some(std::mem::take(&mut self.ahead).into())
        } else if self.is_complete {
            return Poll::Ready(None);
        } else {
            std::task::ready!(self.chunks.poll_recv(cx))
        };
        Poll::Ready(match chunk {
            None => Some(Err(IncompleteBody)),
            Some(end) if end.is_empty() => {
                self.is_complete = true;
                None
            }
            Some(chunk) => {
                let length = chunk.len() as u64;
                self.remaining = self.remaining.map(|left| left.saturating_sub(length));
                Some(Ok(Frame::data(chunk)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && (self.is_complete || self.remaining == Some(0))
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body of an answer, on its way to the caller.
pub struct AnswerBody {
    pub(crate) body: Incoming,
    /// Freed at the end.
    pub(crate) held: (RequestSlot, OpenCall),
    /// Longest pause.
    pub(crate) idle_timeout: Duration,
    pub(crate) max_bytes: u64,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerBody(…)")
    }
}

/// The answer broke off: the endpoint closed the connection, paused too long, or sent too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer of the endpoint broke off")]
pub struct AnswerBroken;

impl AnswerBody {
    /// The body as it comes. The call occupies its slot until the stream is dropped.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, AnswerBroken>> {
        let state = (self.body, self.held, self.max_bytes);
        let idle_timeout = self.idle_timeout;
        stream::try_unfold(state, move |(mut body, held, left)| async move {
            let chunk = timeout(idle_timeout, next_chunk(&mut body)).await;
            let chunk = chunk.map_err(|_| AnswerBroken)?;
            let Some(chunk) = chunk.map_err(|_| AnswerBroken)? else {
                return Ok(None);
            };
            let left = left.checked_sub(chunk.len() as u64).ok_or(AnswerBroken)?;
            Ok(Some((chunk, (body, held, left))))
        })
    }
}

/// Counts calls of one kind.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    open: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// Calls in progress, until their answers have been sent.
    pub open: u64,
    /// Calls that the endpoint answered, with any status.
    pub answered: u64,
    /// Calls that the service refused.
    pub refused: u64,
    /// Calls that the endpoint did not answer.
    pub failed: u64,
}

impl CallCounters {
    pub(crate) fn snapshot(&self) -> CallCounts {
        CallCounts {
            open: self.open.load(Relaxed),
            answered: self.answered.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    pub(crate) fn count_answer(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_failure(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
}

/// Counts a call as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall(Arc<CallCounters>);

impl OpenCall {
    pub(crate) fn new(counters: &Arc<CallCounters>) -> Self {
        counters.open.fetch_add(1, Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
