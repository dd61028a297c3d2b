//! Closes connections whose chunked request body was not read to its end.
//!
//! When the reader of such a body is dropped, actix waits for the next chunk without a limit, so every refused request could
//! hold a connection forever. While a reader exists when the response has been written, actix closes the connection instead.
//! The response body therefore holds the reader.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::HttpMessage as _;
use actix_web::body::BoxBody;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::http::header::TRANSFER_ENCODING;
use actix_web::web::Bytes;
use futures::{Stream, StreamExt as _};

use super::body::with_guard;

/// The reader of a request's body, shared by the handler and the response.
#[derive(Clone)]
pub(super) struct PayloadGuard(Rc<RefCell<Payload>>);

impl PayloadGuard {
    /// Guards a request with a chunked body. For any other body, actix closes the connection by itself.
    pub(super) fn of(req: &mut ServiceRequest) -> Option<Self> {
        if !req.headers().contains_key(TRANSFER_ENCODING) {
            return None;
        }
        let payload_guard = Self(Rc::new(RefCell::new(req.take_payload())));
        req.set_payload(Payload::Stream {
            payload: Box::pin(payload_guard.clone()),
        });
        Some(payload_guard)
    }

    /// Returns the response body, which then holds the request's.
    pub(super) fn attach_to(this: Option<Self>, body: BoxBody) -> BoxBody {
        match this {
            None => body,
            Some(payload_guard) => with_guard(body, payload_guard),
        }
    }
}

impl Stream for PayloadGuard {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.borrow_mut().poll_next_unpin(cx)
    }
}
