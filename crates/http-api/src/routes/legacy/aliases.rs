//! Webhooks under their paths of November 2025 (`docs/reference/wire/legacy.md`).

use actix_web::{post, web};
use domain::id::{ConversationId, SandboxId};

use crate::dto::Success;
use crate::dto::conversation::event::EventDocument;
use crate::extract::{
    ApiCall, Application, EventBatch, EventReporter, PathParam, Reporter, WebhookBody,
};
use crate::problem::Problem;
use crate::routes::sandbox::webhooks;

/// Refuses a path that names another sandbox than the caller.
fn check(caller: &Reporter, named: &SandboxId) -> Result<(), Problem> {
    if caller.0.id == *named {
        Ok(())
    } else {
        Err(Problem::not_found())
    }
}

/// Accepts the record of a conversation; the former path of `/api/v1/webhooks/conversations`.
#[utoipa::path(tag = "Webhooks", security(("ApiKey" = [])), request_body = webhooks::ConversationInfo, responses(
    (status = 200, body = Success),
    (status = 404, description = "Another sandbox, or a conversation of another one"),
))]
#[post("/api/v1/webhooks/{sandbox_id}/conversations")]
pub(crate) async fn report_conversation(
    app: Application,
    ApiCall(caller, (PathParam(named), WebhookBody(webhooks::ConversationReportBody(info)))): ApiCall<
        Reporter,
        (
            PathParam<SandboxId>,
            WebhookBody<webhooks::ConversationReportBody>,
        ),
    >,
) -> Result<web::Json<Success>, Problem> {
    check(&caller, &named)?;
    app.webhooks.conversation(&caller.0, &info).await?;
    Ok(web::Json(Success::DONE))
}

/// Accepts events of a conversation; the former path of `/api/v1/webhooks/events/{conversation_id}`.
#[utoipa::path(tag = "Webhooks", security(("ApiKey" = [])), request_body = Vec<EventDocument>, responses(
    (status = 200, body = Success),
    (status = 429, description = "The sandbox has reported too many bytes in the last minute"),
))]
#[post("/api/v1/webhooks/{sandbox_id}/events/{conversation_id}")]
pub(crate) async fn report_events(
    app: Application,
    ApiCall(EventReporter(caller), (PathParam(named), PathParam(id), mut batch)): ApiCall<
        EventReporter,
        (PathParam<SandboxId>, PathParam<ConversationId>, EventBatch),
    >,
) -> Result<web::Json<Success>, Problem> {
    check(&caller, &named)?;
    webhooks::store_batch(&app, &caller, id, &mut batch).await
}
