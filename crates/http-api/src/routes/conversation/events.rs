//! The events of a conversation, which the path names; on paths of November 2025 the query does
//! (`docs/reference/wire/legacy.md`).

use actix_web::{get, web};
use domain::id::{ConversationId, EventId};
use serde_json::Value;

use crate::decode::{DecodeFields, model};
use crate::dto::conversation::event::{EventCountQuery, EventDocument, EventSearchQuery};
use crate::dto::page::PageQuery;
use crate::dto::sandbox::record::IdsQuery;
use crate::dto::{BATCH_READ_DOCUMENTS, BatchBytes, PageDto, check_batch};
use crate::extract::{Actor, ApiCall, Application, PathParam, Query};
use crate::problem::Problem;

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

type InPath<T> = (PathParam<ConversationId>, Query<T>);
type InQuery<T> = Query<ConversationScoped<T>>;

/// The conversation and the rest of the query.
trait EventRequest<T> {
    fn into_parts(self) -> (ConversationId, T);
}

impl<T> EventRequest<T> for InPath<T> {
    fn into_parts(self) -> (ConversationId, T) {
        let (PathParam(id), Query(query)) = self;
        (id, query)
    }
}

impl<T: DecodeFields> EventRequest<T> for InQuery<T> {
    fn into_parts(self) -> (ConversationId, T) {
        (self.0.conversation.id, self.0.query)
    }
}

macro_rules! event_routes {
    ($request:ident $($parameter:ident)? $(#[$note:meta])? {
        $matches:tt => $search:ident,
        $number:tt => $count:ident,
        $events:tt => $batch:ident,
    }) => {
        /// Searches the events of a conversation; none for an unknown one. A page of large events may end before its limit;
        /// `next_page_id` says whether more follow.
        $(#[doc = ""] #[$note])?
        #[utoipa::path(tag = "Events", params($($parameter,)? EventCountQuery, EventSearchQuery, PageQuery), responses((status = 200, body = PageDto<EventDocument>)))]
        #[get($matches)]
        pub(crate) async fn $search(
            app: Application,
            ApiCall(actor, request): ApiCall<Actor, $request<EventSearchQuery>>,
        ) -> Result<web::Json<PageDto<Value>>, Problem> {
            let (id, query) = request.into_parts();
            let (filter, order, page) = query.into_parts();
            let scope = actor.scope();
            let found = app.events.search(&scope, id, &filter, order, &page).await?;
            Ok(web::Json(PageDto::of(found, |event| event.body)))
        }

        /// Counts all matches of a search.
        $(#[doc = ""] #[$note])?
        #[utoipa::path(tag = "Events", params($($parameter,)? EventCountQuery), responses((status = 200, description = "How many there are", body = u64, content_type = "application/json")))]
        #[get($number)]
        pub(crate) async fn $count(
            app: Application,
            ApiCall(actor, request): ApiCall<Actor, $request<EventCountQuery>>,
        ) -> Result<web::Json<u64>, Problem> {
            let (id, query) = request.into_parts();
            let (scope, filter) = (actor.scope(), query.into());
            Ok(web::Json(app.events.count(&scope, id, &filter).await?))
        }

        /// Loads events by id, in the requested order, with `null` for unknown ones.
        $(#[doc = ""] #[$note])?
        #[utoipa::path(tag = "Events", params($($parameter,)? IdsQuery), responses((status = 200, description = "One entry per id", body = Vec<Option<EventDocument>>), (status = 400, description = "Too many ids"), (status = 413, description = "More than 32 MiB of events")))]
        #[get($events)]
        pub(crate) async fn $batch(
            app: Application,
            ApiCall(actor, request): ApiCall<Actor, $request<IdsQuery>>,
        ) -> Result<web::Json<Vec<Option<Value>>>, Problem> {
            let (id, query) = request.into_parts();
            load_many(&app, &actor, id, query.ids).await.map(web::Json)
        }
    };
}

event_routes!(InPath {
    "/api/v1/conversation/{conversation_id}/events/search" => search,
    "/api/v1/conversation/{conversation_id}/events/count" => count,
    "/api/v1/conversation/{conversation_id}/events" => batch,
});

event_routes!(InQuery ConversationParam #[doc = " A former path of `/api/v1/conversation/{conversation_id}/events`."] {
    "/api/v1/events/search" => search_events,
    "/api/v1/events/count" => count_events,
    "/api/v1/events" => batch_events,
});

async fn load_many(
    app: &Application,
    actor: &Actor,
    id: ConversationId,
    ids: Vec<String>,
) -> Result<Vec<Option<Value>>, Problem> {
    check_batch(&ids, "events")?;
    // An invalid id counts as unknown.
    let ids: Vec<_> = ids.into_iter().map(|id| EventId::parse(id).ok()).collect();
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
    Ok(events.collect())
}
