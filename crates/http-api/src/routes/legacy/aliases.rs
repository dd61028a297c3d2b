//! Paths of November 2025: the same routes under their former paths (`docs/reference/wire/legacy.md`).

use actix_web::{get, post, web};
use domain::id::{ConversationId, SandboxId};
use serde_json::Value;

use crate::decode::{DecodeFields, model};
use crate::dto::conversation::event::{EventCountQuery, EventDocument, EventSearchQuery};
use crate::dto::page::PageQuery;
use crate::dto::sandbox::record::IdsQuery;
use crate::dto::{PageDto, Success};
use crate::extract::{
    Actor, ApiCall, Application, EventBatch, EventReporter, PathParam, Query, Reporter, WebhookBody,
};
use crate::problem::{Detail, Problem};
use crate::routes::conversation::events;
use crate::routes::sandbox::webhooks;

/// The query parameter with the conversation.
#[model(query)]
pub(crate) struct ConversationParam {
    /// The conversation whose events these are.
    #[decode(rename = "conversation_id__eq")]
    #[param(value_type = String, format = Uuid)]
    id: ConversationId,
}

/// A query that also names its conversation.
#[model]
pub(crate) struct ConversationScoped<T: DecodeFields> {
    #[decode(flatten)]
    conversation: ConversationParam,
    #[decode(flatten)]
    query: T,
}

/// Searches the events of a conversation; the former path of `/api/v1/conversation/{conversation_id}/events/search`.
#[utoipa::path(
    tag = "Events",
    params(ConversationParam, EventCountQuery, EventSearchQuery, PageQuery),
    responses((status = 200, description = "A page", body = PageDto<EventDocument>))
)]
#[get("/api/v1/events/search")]
pub(crate) async fn search_events(
    app: Application,
    ApiCall(
        actor,
        Query(ConversationScoped {
            conversation,
            query,
        }),
    ): ApiCall<Actor, Query<ConversationScoped<EventSearchQuery>>>,
) -> Result<web::Json<PageDto<Value>>, Problem> {
    events::search_page(&app, &actor, conversation.id, query).await
}

/// Counts the events of a conversation; the former path of `/api/v1/conversation/{conversation_id}/events/count`.
#[utoipa::path(
    tag = "Events",
    params(ConversationParam, EventCountQuery),
    responses((status = 200, description = "How many there are", body = u64, content_type = "application/json"))
)]
#[get("/api/v1/events/count")]
pub(crate) async fn count_events(
    app: Application,
    ApiCall(
        actor,
        Query(ConversationScoped {
            conversation,
            query,
        }),
    ): ApiCall<Actor, Query<ConversationScoped<EventCountQuery>>>,
) -> Result<web::Json<u64>, Problem> {
    events::count_matching(&app, &actor, conversation.id, query).await
}

/// Loads events by id; the former path of `/api/v1/conversation/{conversation_id}/events`.
#[utoipa::path(
    tag = "Events",
    params(ConversationParam, IdsQuery),
    responses(
        (status = 200, description = "One entry per id", body = Vec<Option<EventDocument>>),
        (status = 400, description = "Too many ids", body = Detail),
        (status = 413, description = "More than 32 MiB of events", body = Detail),
    )
)]
#[get("/api/v1/events")]
pub(crate) async fn batch_events(
    app: Application,
    ApiCall(
        actor,
        Query(ConversationScoped {
            conversation,
            query,
        }),
    ): ApiCall<Actor, Query<ConversationScoped<IdsQuery>>>,
) -> Result<web::Json<Vec<Option<Value>>>, Problem> {
    events::load_many(&app, &actor, conversation.id, query).await
}

/// Refuses a path that names another sandbox than the caller.
fn check(caller: &Reporter, named: &SandboxId) -> Result<(), Problem> {
    if caller.0.id == *named {
        Ok(())
    } else {
        Err(Problem::not_found())
    }
}

/// Accepts the record of a conversation; the former path of `/api/v1/webhooks/conversations`.
#[utoipa::path(
    tag = "Webhooks",
    security(("ApiKey" = [])),
    params(("sandbox_id" = String, Path, description = "The caller's own sandbox.")),
    request_body = webhooks::ConversationInfo,
    responses(
        (status = 200, description = "Stored", body = Success),
        (status = 404, description = "Another sandbox, or a conversation of another one", body = Detail),
    )
)]
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
#[utoipa::path(
    tag = "Webhooks",
    security(("ApiKey" = [])),
    params(
        ("sandbox_id" = String, Path, description = "The caller's own sandbox."),
        ("conversation_id" = Uuid, Path),
    ),
    request_body = Vec<EventDocument>,
    responses(
        (status = 200, description = "Stored", body = Success),
        (status = 429, description = "The sandbox has reported too many bytes in the last minute", body = Detail),
    )
)]
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
