//! Response bodies that hold a guard until they are written or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;

/// Returns the body, which then holds `held`.
pub(super) fn with_guard(body: BoxBody, held: impl Unpin + 'static) -> BoxBody {
    BoxBody::new(GuardedBody { body, _held: held })
}

struct GuardedBody<T> {
    body: BoxBody,
    _held: T,
}

impl<T: Unpin> MessageBody for GuardedBody<T> {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
