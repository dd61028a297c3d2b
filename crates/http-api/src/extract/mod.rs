//! Turns an HTTP request into typed input, in one fixed order: the **caller**, then path and query, then the body.
//!
//! A handler takes one [`ApiCall`]. It authenticates before it looks at anything else of the request, and before it reads the
//! body. All parts then report into one list of errors, so that a client sees all of them. (Actix polls the extractors of a
//! handler concurrently and answers with the first failure; a tuple of extractors could not keep that order.)

mod automation_routes;
mod body;
mod callers;
mod client;
mod event_batch;
mod form;
mod header;
pub(crate) mod key_attempts;
mod params;
mod parse_budget;
mod report_intake;

use std::future::Future;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use domain::clock::Timestamp;
use futures::future::LocalBoxFuture;

use crate::audit::{self, AuditContext};
use crate::decode::{ErrorFormat, FieldErrors};
use crate::problem::Problem;
use crate::state::HttpState;

pub use crate::access_recheck::AccessRecheck;
pub use crate::audit::AuditOrigin;
pub use crate::rate_limit::KeyPurpose;
pub use body::{Body, BodyWithBytes, DiscardedBody, OptionalBody, RawJson, WebhookBody};
pub use callers::{
    Actor, Admin, Anonymous, Authenticator, Caller, EventReporter, LegacyActor, Reporter,
    SandboxCaller, UserOrSandbox, key_of,
};
pub(crate) use callers::{
    KEY_HEADER, MAX_KEY_BYTES, bearer_of, callback_sandbox, named_organization, require_active,
    session_user, unplaced_actor, user_of,
};
pub use client::ClientAddress;
pub use event_batch::{EventBatch, EventChunk};
pub(crate) use form::FormFields;
pub use header::{ClientKind, IdempotencyKey, LastEventId};
pub use params::{NamedParam, PathParam, PathParams, Query};
pub(crate) use parse_budget::ParseBudget;
pub(crate) use report_intake::ReportIntake;

/// The application, as handlers take it: `app: Application`.
pub type Application = web::Data<application::App>;

/// The state of this crate: `state: State`. Few handlers need it.
pub type State = web::Data<HttpState>;

/// A request: its caller and its input. `P` is one [`RequestPart`] or a tuple of them, in the order in which their errors
/// should be listed (path, query, body).
#[derive(Debug)]
pub struct ApiCall<W, P = ()>(pub W, pub P);

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

/// When the request was received: one reading of the clock serves its limits and the age of its key.
pub(crate) fn received_at(req: &HttpRequest, state: &HttpState) -> Timestamp {
    AuditContext::received_at(req).unwrap_or_else(|| state.ports.clock.now())
}

pub(crate) fn state_of(req: &HttpRequest) -> Result<&HttpState, Problem> {
    req.app_data::<State>()
        .map(web::Data::get_ref)
        .ok_or_else(|| Problem::internal("HttpState is not registered with the application"))
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
