//! Turns an HTTP request into typed input, in one fixed order: the **caller**, then path and query, then the body.
//!
//! A handler takes one [`ApiCall`]. It authenticates before it looks at anything else of the request, and before it reads the
//! body. All parts then report into one list of errors, so that a client sees all of them. (Actix polls the extractors of a
//! handler concurrently and answers with the first failure; a tuple of extractors could not keep that order.)

mod api_call;
mod audit_origin;
pub(crate) mod authenticator;
mod automation_routes;
mod body;
mod callers;
pub(crate) mod client;
mod event_batch;
mod form;
mod header;
pub(crate) mod key_attempts;
pub(crate) mod keys;
mod params;
pub(crate) mod parse_budget;
pub(crate) mod report_intake;
pub(crate) mod request_part;

pub use crate::access_recheck::AccessRecheck;
pub use crate::audit::AuditOrigin;
pub use crate::rate_limit::KeyPurpose;
pub(crate) use crate::state::state_of;
pub use crate::state::{Application, State};
pub use api_call::ApiCall;
pub(crate) use api_call::identify_caller;
pub use authenticator::Authenticator;
pub use body::{Body, BodyWithBytes, DiscardedBody, OptionalBody, RawJson, WebhookBody};
pub use callers::{
    Actor, Admin, Anonymous, Caller, EventReporter, LegacyActor, Reporter, SandboxCaller,
    UserOrSandbox,
};
pub(crate) use callers::{
    callback_sandbox, named_organization, require_active, session_user, unplaced_actor, user_of,
};
pub use client::ClientAddress;
pub use event_batch::{EventBatch, EventChunk};
pub(crate) use form::FormFields;
pub use header::{ClientKind, IdempotencyKey, LastEventId};
pub(crate) use key_attempts::received_at;
pub use keys::key_of;
pub(crate) use keys::{KEY_HEADER, MAX_KEY_BYTES, bearer_of, bearer_text};
pub use params::{NamedParam, PathParam, PathParams, Query};
pub use request_part::{RequestInput, RequestPart};
