//! A request, as handlers take it: the caller is identified first, then the parts are read.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures::future::LocalBoxFuture;

use super::callers::Caller;
use super::key_attempts;
use super::request_part::{RequestInput, RequestPart};
use crate::audit;
use crate::decode::FieldErrors;
use crate::problem::Problem;

/// A request: its caller and its input. `P` is one [`RequestPart`] or a tuple of them, in the order in which their errors
/// should be listed (path, query, body).
#[derive(Debug)]
pub struct ApiCall<W, P = ()>(pub W, pub P);

impl<W: Caller + 'static, P: RequestPart + 'static> FromRequest for ApiCall<W, P> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (req, mut payload) = (req.clone(), payload.take());
        Box::pin(async move {
            let who = identify_caller::<W>(&req).await?;
            let mut input = RequestInput {
                req: &req,
                payload: &mut payload,
                error_format: W::ERROR_FORMAT,
                errors: FieldErrors::new(),
            };
            match P::extract(&mut input).await? {
                Some(part) if input.errors.is_empty() => {
                    audit::begin(&req);
                    Ok(Self(who, part))
                }
                _ => Err(Problem::invalid(&input.errors, W::ERROR_FORMAT)),
            }
        })
    }
}

/// Identifies the caller, unless its address has tried too many wrong keys.
pub(crate) async fn identify_caller<W: Caller>(req: &HttpRequest) -> Result<W, Problem> {
    let Some(purpose) = W::KEY_PURPOSE else {
        return W::identify(req).await;
    };
    key_attempts::refuse_excess_attempts(req, purpose)?;
    let found = W::identify(req).await;
    found.inspect_err(|problem| key_attempts::count_failure(req, purpose, problem))
}
