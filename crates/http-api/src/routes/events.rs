//! The events of a conversation.

use actix_web::{get, web};
use domain::id::{ConversationId, EventId};
use serde_json::Value;

use crate::dto::event::{EventCountQuery, EventDocument, EventSearchQuery};
use crate::dto::sandbox::IdsQuery;
use crate::dto::{PageDto, check_batch};
use crate::extract::{Actor, Application, Call, PathParam, Query};
use crate::problem::{Detail, Problem};

/// Searches the events of a conversation. An unknown conversation has none.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), EventCountQuery, EventSearchQuery),
    responses((status = 200, description = "A page", body = PageDto<EventDocument>))
)]
#[get("/api/v1/conversation/{conversation_id}/events/search")]
pub(super) async fn search(
    app: Application,
    Call(actor, (PathParam(id), Query(query))): Call<
        Actor,
        (PathParam<ConversationId>, Query<EventSearchQuery>),
    >,
) -> Result<web::Json<PageDto<Value>>, Problem> {
    let (filter, order, page) = query.into_parts();
    let found = app
        .events
        .search(&actor.scope(), id, &filter, order, &page)
        .await?;
    Ok(web::Json(PageDto::of(found, |event| event.body)))
}

/// Counts what a search would find in all.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), EventCountQuery),
    responses((status = 200, description = "How many there are", body = u64, content_type = "application/json"))
)]
#[get("/api/v1/conversation/{conversation_id}/events/count")]
pub(super) async fn count(
    app: Application,
    Call(actor, (PathParam(id), Query(query))): Call<
        Actor,
        (PathParam<ConversationId>, Query<EventCountQuery>),
    >,
) -> Result<web::Json<u64>, Problem> {
    Ok(web::Json(
        app.events.count(&actor.scope(), id, &query.into()).await?,
    ))
}

/// Events by id, in the order asked for, with `null` for unknown ones.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), IdsQuery),
    responses(
        (status = 200, description = "One entry per id", body = Vec<Option<EventDocument>>),
        (status = 400, description = "Too many ids", body = Detail),
    )
)]
#[get("/api/v1/conversation/{conversation_id}/events")]
pub(super) async fn batch(
    app: Application,
    Call(actor, (PathParam(id), Query(query))): Call<
        Actor,
        (PathParam<ConversationId>, Query<IdsQuery>),
    >,
) -> Result<web::Json<Vec<Option<Value>>>, Problem> {
    check_batch(&query.ids, "events")?;
    // What cannot be an id is unknown like any other.
    let ids: Vec<_> = query
        .ids
        .into_iter()
        .map(|text| EventId::parse(text).ok())
        .collect();
    let known: Vec<_> = ids.iter().flatten().cloned().collect();
    let mut found = app
        .events
        .find_many(&actor.scope(), id, &known)
        .await?
        .into_iter();
    let events = ids
        .into_iter()
        .map(|id| id.and_then(|_| found.next().flatten()));
    Ok(web::Json(events.map(|event| Some(event?.body)).collect()))
}
