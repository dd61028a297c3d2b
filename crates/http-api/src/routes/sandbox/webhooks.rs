//! Webhook reports of agent servers. A refused batch is sent again and then lost, so none is refused for its form.

use actix_web::{post, web};
use domain::agent::AgentConversation;
use domain::id::ConversationId;
use serde_json::Value;

use crate::decode::{Decode, FieldError, FieldErrors, Object, Path};
use crate::dto::Success;
use crate::dto::conversation::event::EventDocument;
use crate::extract::{
    ApiCall, Application, EventBatch, EventChunk, EventReporter, PathParam, Reporter, WebhookBody,
};
use crate::problem::Problem;

/// A conversation's record. Only its id is required; unknown members are ignored.
pub(crate) struct ConversationReportBody(pub(crate) AgentConversation);

/// By hand: the whole document is read, by the domain.
impl Decode for ConversationReportBody {
    /// The record holds the agent's configuration.
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        object.required::<ConversationId>("id")?;
        let read = AgentConversation::from_document(value);
        if read.is_none() {
            object.add_error("id", FieldError::value_error("the id cannot be used"));
        }
        read.map(Self)
    }
}

/// A conversation's record, as agent servers send it.
#[derive(Debug, utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "for the document only; see `ConversationReportBody`"
)]
pub(crate) struct ConversationInfo {
    #[schema(format = Uuid)]
    id: String,
}

/// Accepts the record of a conversation.
#[utoipa::path(tag = "Webhooks", security(("ApiKey" = [])), request_body = ConversationInfo, responses(
    (status = 200, body = Success),
    (status = 404, description = "The conversation is being started, or the sandbox is being deleted"),
))]
#[post("/api/v1/webhooks/conversations")]
pub(crate) async fn conversation(
    app: Application,
    ApiCall(caller, WebhookBody(ConversationReportBody(info))): ApiCall<
        Reporter,
        WebhookBody<ConversationReportBody>,
    >,
) -> Result<web::Json<Success>, Problem> {
    app.webhooks.conversation(&caller.0, &info).await?;
    Ok(web::Json(Success::DONE))
}

/// Accepts events of a conversation. Answers after they are stored; repeating a report is harmless.
#[utoipa::path(tag = "Webhooks", security(("ApiKey" = [])), request_body = Vec<EventDocument>, responses(
    (status = 200, body = Success),
    (status = 429, description = "The sandbox has reported too many bytes in the last minute"),
))]
#[post("/api/v1/webhooks/events/{conversation_id}")]
pub(crate) async fn events(
    app: Application,
    ApiCall(caller, (PathParam(id), mut batch)): ApiCall<
        EventReporter,
        (PathParam<ConversationId>, EventBatch),
    >,
) -> Result<web::Json<Success>, Problem> {
    store_batch(&app, &caller.0, id, &mut batch).await
}

/// Stores a batch, independent of the request's path.
pub(crate) async fn store_batch(
    app: &Application,
    caller: &Reporter,
    id: ConversationId,
    batch: &mut EventBatch,
) -> Result<web::Json<Success>, Problem> {
    // Repeating the batch is harmless, even if some chunks were stored before another failed.
    let mut chunk = Some(batch.first_chunk().await?);
    while let Some(EventChunk {
        events: reported,
        permit,
    }) = chunk
    {
        app.webhooks.events(&caller.0, id, reported).await?;
        // Before the next chunk waits for its share of the memory budget.
        drop(permit);
        chunk = batch.next_chunk().await?;
    }
    Ok(web::Json(Success::DONE))
}
