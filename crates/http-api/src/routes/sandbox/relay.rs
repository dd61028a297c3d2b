//! Requests of sandboxes that the service makes elsewhere: both bodies pass as they come.

use std::pin::Pin;
use std::time::Duration;

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use broker::AnswerBroken;
use futures::future::Fuse;
use futures::{FutureExt as _, Stream, StreamExt as _, future, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Why a body is refused before it is read.
pub(super) enum LengthError {
    TooLarge,
    Invalid,
}

/// The announced length of a request; `None` if it comes in chunks.
pub(super) fn length_of(req: &HttpRequest, max: u64) -> Result<Option<u64>, LengthError> {
    if req.headers().contains_key("transfer-encoding") {
        return Ok(None);
    }
    let text = req.headers().get("content-length");
    let Some(text) = text.and_then(|text| text.to_str().ok()) else {
        return Ok(Some(0));
    };
    match text.parse() {
        Ok(length) if length > max => Err(LengthError::TooLarge),
        Ok(length) => Ok(Some(length)),
        Err(_) => Err(LengthError::Invalid),
    }
}

/// All headers of a request. The crate `broker` drops those that may not pass.
pub(super) fn headers_of(req: &HttpRequest) -> Vec<(String, Vec<u8>)> {
    req.headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// A request's body on its way.
pub(super) struct Upload(Fuse<Pin<Box<dyn Future<Output = ()>>>>);

impl Upload {
    /// Moves the body to the call, until its end. A body that breaks off, pauses longer than `idle` or has more than `max`
    /// bytes is cut off, and the endpoint gets no complete request.
    pub(super) fn new(
        payload: web::Payload,
        to: mpsc::Sender<Bytes>,
        idle: Duration,
        max: u64,
    ) -> Self {
        let moving: Pin<Box<dyn Future<Output = ()>>> = Box::pin(move_body(payload, to, idle, max));
        Self(moving.fuse())
    }

    /// Waits for the answer while the body is sent.
    pub(super) async fn until<T>(&mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        future::poll_fn(|cx| {
            let _ = self.0.poll_unpin(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Sends the answer as it comes, while the rest of the body is sent: an answer may begin before the end of its request.
    pub(super) fn respond(
        mut self,
        mut response: HttpResponseBuilder,
        chunks: impl Stream<Item = Result<Bytes, AnswerBroken>> + 'static,
    ) -> HttpResponse {
        let mut chunks = Box::pin(chunks);
        response.streaming(stream::poll_fn(move |cx| {
            let _ = self.0.poll_unpin(cx);
            chunks.poll_next_unpin(cx)
        }))
    }
}

async fn move_body(
    mut payload: web::Payload,
    to: mpsc::Sender<Bytes>,
    idle: Duration,
    mut left: u64,
) {
    loop {
        let Ok(chunk) = timeout(idle, payload.next()).await else {
            return;
        };
        let chunk = match chunk {
            None => Bytes::new(),
            Some(Ok(chunk)) if chunk.is_empty() => continue,
            Some(Ok(chunk)) => chunk,
            Some(Err(_)) => return,
        };
        let is_end = chunk.is_empty();
        let Some(rest) = left.checked_sub(chunk.len() as u64) else {
            return;
        };
        left = rest;
        let sent = timeout(idle, to.send(chunk)).await;
        if is_end || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}
