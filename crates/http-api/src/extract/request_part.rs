//! The parts of a request's input.

use std::future::Future;

use actix_web::HttpRequest;
use actix_web::dev::Payload;

use crate::decode::{ErrorFormat, FieldErrors};
use crate::problem::Problem;

/// One part of a request's input.
pub trait RequestPart: Sized {
    /// Reads the part. `Ok(None)` means that errors were added; a [`Problem`] ends the request immediately (an unreadable or
    /// oversized body).
    fn extract(input: &mut RequestInput<'_>)
    -> impl Future<Output = Result<Option<Self>, Problem>>;
}

/// A request whose parts are being read.
pub struct RequestInput<'a> {
    /// Its head.
    pub req: &'a HttpRequest,
    /// Its body.
    pub payload: &'a mut Payload,
    /// The form of errors for its caller.
    pub error_format: ErrorFormat,
    /// The errors of the parts so far.
    pub errors: FieldErrors,
}

impl RequestPart for () {
    async fn extract(_: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(()))
    }
}

macro_rules! tuple_of_request_parts {
    ($($part:ident),+) => {
        #[expect(non_snake_case, reason = "the type parameters name the values, too")]
        impl<$($part: RequestPart),+> RequestPart for ($($part,)+) {
            async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
                $(let $part = $part::extract(input).await?;)+
                Ok((|| Some(($($part?,)+)))())
            }
        }
    };
}

tuple_of_request_parts!(A, B);
tuple_of_request_parts!(A, B, C);
tuple_of_request_parts!(A, B, C, D);
