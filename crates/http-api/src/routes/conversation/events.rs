//! The events of a conversation.

use actix_web::{get, web};
use domain::id::{ConversationId, EventId};
use serde_json::Value;

use crate::dto::conversation::event::{EventCountQuery, EventDocument, EventSearchQuery};
use crate::dto::page::PageQuery;
use crate::dto::sandbox::record::IdsQuery;
use crate::dto::{BATCH_READ_DOCUMENTS, BatchBytes, PageDto, check_batch};
use crate::extract::{Actor, ApiCall, Application, PathParam, Query};
use crate::problem::{Detail, Problem};

/// Searches the events of a conversation; none for an unknown one. A page of large events may end before its limit;
/// `next_page_id` says whether more follow.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), EventCountQuery, EventSearchQuery, PageQuery),
    responses((status = 200, description = "A page", body = PageDto<EventDocument>))
)]
#[get("/api/v1/conversation/{conversation_id}/events/search")]
pub(crate) async fn search(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (PathParam<ConversationId>, Query<EventSearchQuery>),
    >,
) -> Result<web::Json<PageDto<Value>>, Problem> {
    search_page(&app, &actor, id, query).await
}

/// A page of events, independent of the request's path.
pub(crate) async fn search_page(
    app: &Application,
    actor: &Actor,
    id: ConversationId,
    query: EventSearchQuery,
) -> Result<web::Json<PageDto<Value>>, Problem> {
    let (filter, order, page) = query.into_parts();
    let found = app
        .events
        .search(&actor.scope(), id, &filter, order, &page)
        .await?;
    Ok(web::Json(PageDto::of(found, |event| event.body)))
}

/// Counts all matches of a search.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), EventCountQuery),
    responses((status = 200, description = "How many there are", body = u64, content_type = "application/json"))
)]
#[get("/api/v1/conversation/{conversation_id}/events/count")]
pub(crate) async fn count(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (PathParam<ConversationId>, Query<EventCountQuery>),
    >,
) -> Result<web::Json<u64>, Problem> {
    count_matching(&app, &actor, id, query).await
}

/// The number of events, independent of the request's path.
pub(crate) async fn count_matching(
    app: &Application,
    actor: &Actor,
    id: ConversationId,
    query: EventCountQuery,
) -> Result<web::Json<u64>, Problem> {
    Ok(web::Json(
        app.events.count(&actor.scope(), id, &query.into()).await?,
    ))
}

/// Loads events by id, in the requested order, with `null` for unknown ones.
#[utoipa::path(
    tag = "Events",
    params(("conversation_id" = Uuid, Path), IdsQuery),
    responses(
        (status = 200, description = "One entry per id", body = Vec<Option<EventDocument>>),
        (status = 400, description = "Too many ids", body = Detail),
        (status = 413, description = "More than 32 MiB of events", body = Detail),
    )
)]
#[get("/api/v1/conversation/{conversation_id}/events")]
pub(crate) async fn batch(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query))): ApiCall<
        Actor,
        (PathParam<ConversationId>, Query<IdsQuery>),
    >,
) -> Result<web::Json<Vec<Option<Value>>>, Problem> {
    load_many(&app, &actor, id, query).await
}

/// Events by id, independent of the request's path.
pub(crate) async fn load_many(
    app: &Application,
    actor: &Actor,
    id: ConversationId,
    query: IdsQuery,
) -> Result<web::Json<Vec<Option<Value>>>, Problem> {
    check_batch(&query.ids, "events")?;
    // An invalid id counts as unknown.
    let ids: Vec<_> = query
        .ids
        .into_iter()
        .map(|text| EventId::parse(text).ok())
        .collect();
    let known: Vec<_> = ids.iter().flatten().cloned().collect();
    let (mut found, mut bytes) = (Vec::new(), BatchBytes::default());
    for some in known.chunks(BATCH_READ_DOCUMENTS) {
        for event in app.events.find_many(&actor.scope(), id, some).await? {
            let body = event.map(|event| event.body);
            bytes.add(&body, "events")?;
            found.push(body);
        }
    }
    let mut found = found.into_iter();
    let events = ids
        .into_iter()
        .map(|id| id.and_then(|_| found.next().flatten()));
    Ok(web::Json(events.collect()))
}
