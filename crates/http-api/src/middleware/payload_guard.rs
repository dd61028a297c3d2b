//! Bodies in chunks that nobody read to their end.
//!
//! Once the reader of such a body is gone, actix goes on waiting for the next chunk without any limit, so that every
//! refused request could hold a connection for ever. As long as there is a reader when the answer has been written, it
//! closes the connection instead. So the answer keeps one.

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

/// The body of a request, read by the handler and kept by the answer.
#[derive(Clone)]
pub(super) struct PayloadGuard(Rc<RefCell<Payload>>);

impl PayloadGuard {
    /// Of a request whose body comes in chunks; of any other, actix closes the connection by itself.
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

    /// The body of an answer, which keeps the request's.
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
