//! Pending messages.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, post};
use application::pending::QueuedMessage;

use crate::dto::conversation::pending_message::{
    PendingMessageRequest, PendingMessageResponse, PendingTargetParam, message,
};
use crate::extract::{Actor, ApiCall, Application, IdempotencyKey, PathParam, RawJson};
use crate::idempotency::{IdempotencyKeyHeader, repeatable, respond, to_json};
use crate::problem::Problem;

type QueueParts = (PathParam<PendingTargetParam>, IdempotencyKey, RawJson);

/// Stores a message until the conversation can receive it: its start task is READY, and its sandbox runs.
///
/// The conversation may be named by its start task, as `task-<id of the task>`. Messages are delivered once each, in the
/// order of their arrival.
#[utoipa::path(
    tag = "Pending Messages",
    params(("conversation_id" = String, Path), IdempotencyKeyHeader),
    request_body = PendingMessageRequest,
    responses(
        (status = 201, body = PendingMessageResponse),
        (status = 400, description = "No message"),
        (status = 409, description = "The start of the conversation has failed"),
    )
)]
#[post("/api/v1/conversations/{conversation_id}/pending-messages")]
pub(crate) async fn queue(
    app: Application,
    ApiCall(actor, (PathParam(text), IdempotencyKey(key), RawJson(body))): ApiCall<
        Actor,
        QueueParts,
    >,
) -> Result<HttpResponse, Problem> {
    // A repeated request is compared by these bytes.
    let input = match (&key, &body) {
        (Some(_), Ok(body)) => format!("{}\n{body}", text.0),
        _ => String::new(),
    };
    let (message, user) = (message(body)?, &actor.owner);
    let target = text.read()?;
    let render = |placed: &QueuedMessage| to_json(&PendingMessageResponse::from(*placed));
    let call = key.map(|key| repeatable(key, "pending message", input.as_bytes(), &render));
    let queued = app
        .pending
        .enqueue_once(user, target, message, call.as_ref());
    Ok(respond(
        StatusCode::CREATED,
        queued.await?,
        None,
        PendingMessageResponse::from,
    ))
}
