//! `Idempotency-Key`: a repeated request gets the response of the first one.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use application::idempotency::{IdempotentCall, IdempotentResult};
use serde::Serialize;
use utoipa::IntoParams;

use crate::audit::CreatedResource;

const REPLAYED_HEADER: &str = "Idempotency-Replayed";

/// The header, for the document.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only described; `IdempotencyKey` reads it")]
pub(crate) struct IdempotencyKeyHeader {
    /// Any text of the client's (1 to 255 visible ASCII characters). A repeated request with the same key within 24 hours
    /// creates nothing new and gets the first response; a different request with the key is refused. The latest 2000 keys of
    /// a user are remembered.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// The input for carrying out a request with a key once. Two requests are the same if operation and input (body or query,
/// as sent) are.
pub(crate) fn repeatable<'a, T>(
    key: String,
    operation: &'static str,
    input: &'a [u8],
    render: &'a (dyn Fn(&T) -> String + Send + Sync),
) -> IdempotentCall<'a, T> {
    IdempotentCall {
        key,
        operation,
        input,
        render,
    }
}

/// Serializes a response as it is sent and stored.
pub(crate) fn to_json(answer: &impl Serialize) -> String {
    // Response types consist of texts and numbers, which always serialize.
    serde_json::to_string(answer).unwrap_or_default()
}

/// Builds the response to a request that may be a repetition. `created` names the resource for the audit log.
pub(crate) fn respond<T, D: Serialize>(
    status: StatusCode,
    answer: IdempotentResult<T>,
    created: Option<CreatedResource>,
    shown: impl FnOnce(T) -> D,
) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    response.content_type(ContentType::json());
    let mut response = match answer {
        IdempotentResult::New(made) => response.body(to_json(&shown(made))),
        IdempotentResult::Repeated(text) => {
            response.insert_header((REPLAYED_HEADER, "true")).body(text)
        }
    };
    if let Some(created) = created {
        response.extensions_mut().insert(created);
    }
    response
}
