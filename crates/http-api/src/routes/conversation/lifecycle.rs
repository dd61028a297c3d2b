//! Conversations: start, list, change, delete, send a message.

use std::io;
use std::pin::pin;

use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, delete, get, patch, post, web};
use application::idempotency::IdempotentResult;
use domain::id::{ConversationId, StartTaskId};
use domain::page::Page;
use domain::start_task::StartTask;
use futures::future::{BoxFuture, Either, select};
use futures::{FutureExt as _, Stream, StreamExt, stream};
use tokio::sync::mpsc;

use crate::audit::CreatedResource;
use crate::dto::conversation::message::{NextMessageDto, SentMessageDto};
use crate::dto::conversation::record::{
    BatchQuery, ConversationCountQuery, ConversationDto, ConversationFilterQuery,
    ConversationIdText, ConversationListQuery, ConversationOrderQuery, ConversationSearchQuery,
    ConversationUpdateDto, IncludedPartsQuery, ListedConversations,
};
use crate::dto::conversation::start_request::StartConversationDto;
use crate::dto::conversation::start_task::StartTaskDto;
use crate::dto::page::PageQuery;
use crate::dto::{PageDto, Success};
use crate::extract::{
    AccessRecheck, Actor, ApiCall, Application, Body, BodyWithBytes, IdempotencyKey, PathParam,
    PathParams, Query, State,
};
use crate::idempotency::{IdempotencyKeyHeader, repeatable, respond, to_json};
use crate::problem::Problem;
use crate::routes::conversation::workspace::ConversationCall;

/// Ids in one batch read; the reference has the same limit.
const MAX_BATCH_IDS: usize = 99;

/// Starts a conversation. Answers immediately with the start task.
#[utoipa::path(tag = "Conversations", params(IdempotencyKeyHeader), request_body = StartConversationDto, responses(
    (status = 200, body = StartTaskDto),
    (status = 403, description = "Only the first user may have sandboxes on this installation"),
    (status = 404, description = "Unknown sandbox or parent"),
    (status = 409, description = "The id is taken, the sandbox cannot be used, or a list of hosts cannot be enforced"),
))]
#[post("/api/v1/app-conversations")]
pub(crate) async fn start(
    app: Application,
    ApiCall(actor, (IdempotencyKey(key), body)): ApiCall<Actor, StartParts>,
) -> Result<HttpResponse, Problem> {
    let answer = start_or_replay(&app, &actor, key, body).await?;
    let created = CreatedResource::of(&answer, |task| {
        format!("conversation:{}", task.conversation_id)
    });
    Ok(respond(StatusCode::OK, answer, created, StartTaskDto::from))
}

type StartParts = (IdempotencyKey, BodyWithBytes<StartConversationDto>);
type StreamStartParts = (
    IdempotencyKey,
    BodyWithBytes<StartConversationDto>,
    AccessRecheck,
);

/// Starts a conversation, or replays the response of the first request with this key. Both routes are one operation, because
/// they create the same resource.
async fn start_or_replay(
    app: &Application,
    actor: &Actor,
    key: Option<String>,
    body: BodyWithBytes<StartConversationDto>,
) -> Result<IdempotentResult<StartTask>, Problem> {
    let input = body.value.into();
    let render = |task: &StartTask| to_json(&StartTaskDto::from(task.clone()));
    let call = key.map(|key| repeatable(key, "start", &body.bytes, &render));
    let started = app.starts.start_once(&actor.owner, input, call.as_ref());
    Ok(started.await?)
}

/// Starts a conversation and streams every state of its start task, as one JSON array that grows until READY or ERROR.
#[utoipa::path(tag = "Conversations", params(IdempotencyKeyHeader), request_body = StartConversationDto, responses(
    (status = 200, description = "The states of the task", body = Vec<StartTaskDto>),
    (status = 403, description = "Only the first user may have sandboxes on this installation"),
    (status = 404, description = "Unknown sandbox or parent"),
    (status = 409, description = "The id is taken, the sandbox cannot be used, or a list of hosts cannot be enforced"),
))]
#[post("/api/v1/app-conversations/stream-start")]
pub(crate) async fn stream_start(
    app: Application,
    ApiCall(actor, (IdempotencyKey(key), body, recheck)): ApiCall<Actor, StreamStartParts>,
) -> Result<HttpResponse, Problem> {
    let (task, updates) = if key.is_some() {
        let id = match start_or_replay(&app, &actor, key, body).await? {
            IdempotentResult::New(task) => task.id,
            IdempotentResult::Repeated(text) => id_in(&text)?,
        };
        let followed = app.starts.follow(&actor.scope(), id).await?;
        // Only for a repeated start whose conversation was deleted since.
        followed.ok_or_else(|| Problem::missing("The start task is deleted"))?
    } else {
        app.starts
            .start_streaming(&actor.owner, body.value.into())
            .await?
    };
    Ok(HttpResponse::Ok()
        .content_type(ContentType::json())
        .streaming(stream_states(
            task,
            updates,
            recheck.until_refused(actor).boxed(),
        )))
}

/// The id in a stored response.
fn id_in(answer: &str) -> Result<StartTaskId, Problem> {
    let document: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let id = document["id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Problem::internal("a stored response has no id"))
}

/// The array, element by element. The start does not depend on the client, which may disconnect at any time. Breaks off when
/// access is refused.
fn stream_states(
    first: StartTask,
    updates: mpsc::Receiver<StartTask>,
    refused: BoxFuture<'static, ()>,
) -> impl Stream<Item = io::Result<Bytes>> {
    let open = (!first.status.is_terminal()).then_some((updates, refused));
    let later = stream::unfold(open, |open| async move {
        let (mut updates, mut refused) = open?;
        let task = match select(pin!(updates.recv()), &mut refused).await {
            Either::Left((task, _)) => task?,
            Either::Right(_) => {
                let cut = io::Error::from(io::ErrorKind::PermissionDenied);
                return Some((Err(cut), None));
            }
        };
        let open = (!task.status.is_terminal()).then_some((updates, refused));
        Some((array_element(",\n", task), open))
    });
    stream::once(async move { array_element("[\n", first) })
        .chain(later)
        .chain(stream::once(async { Ok(Bytes::from_static(b"]")) }))
}

fn array_element(before: &str, task: StartTask) -> io::Result<Bytes> {
    let json = serde_json::to_string(&StartTaskDto::from(task))?;
    Ok(Bytes::from(format!("{before}{json}")))
}

/// Lists conversations, newest first unless `sort_order` says otherwise. With `ids`, loads exactly these in their order, with `null` for unknown ones.
#[utoipa::path(
    tag = "Conversations", params(BatchQuery, ConversationFilterQuery, ConversationOrderQuery, IncludedPartsQuery, PageQuery),
    responses(
        (status = 200, description = "A page, or with `ids` an array", body = ListedConversations),
        (status = 400, description = "Invalid or too many ids"),
    )
)]
#[get("/api/v1/app-conversations")]
pub(crate) async fn list(
    app: Application,
    state: State,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<ConversationListQuery>>,
) -> Result<web::Json<ListedConversations>, Problem> {
    Ok(web::Json(match query {
        ConversationListQuery::Batch(BatchQuery { ids }) => {
            let found = app
                .conversations
                .find_many(&actor.scope(), &parse_ids(&ids)?)
                .await?;
            let shown = found
                .into_iter()
                .map(|view| Some(ConversationDto::of(view?, &app.sandboxes, &state.addresses)));
            ListedConversations::Batch(shown.collect())
        }
        ConversationListQuery::Search(wanted) => {
            ListedConversations::Page(search_page(&app, &state, &actor, wanted).await?)
        }
    }))
}

/// Searches conversations, newest first unless `sort_order` says otherwise.
#[utoipa::path(tag = "Conversations", params(ConversationFilterQuery, ConversationOrderQuery, IncludedPartsQuery, PageQuery), responses(
    (status = 200, body = PageDto<ConversationDto>),
))]
#[get("/api/v1/app-conversations/search")]
pub(crate) async fn search(
    app: Application,
    state: State,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<ConversationSearchQuery>>,
) -> Result<web::Json<PageDto<ConversationDto>>, Problem> {
    Ok(web::Json(search_page(&app, &state, &actor, query).await?))
}

/// Counts all matches of a search.
#[utoipa::path(tag = "Conversations", params(ConversationFilterQuery, IncludedPartsQuery), responses(
    (status = 200, description = "How many there are", body = u64, content_type = "application/json"),
))]
#[get("/api/v1/app-conversations/count")]
pub(crate) async fn count(
    app: Application,
    ApiCall(actor, Query(query)): ApiCall<Actor, Query<ConversationCountQuery>>,
) -> Result<web::Json<u64>, Problem> {
    Ok(web::Json(match query.into_filter() {
        Some(filter) => app.conversations.count(&actor.scope(), &filter).await?,
        None => 0,
    }))
}

/// Changes title, public flag, repository, branch or provider.
#[utoipa::path(tag = "Conversations", request_body = ConversationUpdateDto, responses(
    (status = 200, body = ConversationDto),
))]
#[patch("/api/v1/app-conversations/{conversation_id}")]
pub(crate) async fn update(
    app: Application,
    state: State,
    ApiCall(actor, (PathParam(id), Body(update))): ConversationCall<Body<ConversationUpdateDto>>,
) -> Result<web::Json<ConversationDto>, Problem> {
    let view = app
        .conversations
        .update(&actor.scope(), id, &update.into())
        .await?;
    Ok(web::Json(ConversationDto::of(
        view,
        &app.sandboxes,
        &state.addresses,
    )))
}

/// Deletes a conversation with its parts, and its sandbox if no other conversation uses it.
#[utoipa::path(tag = "Conversations", responses(
    (status = 200, body = Success),
    (status = 400, description = "Invalid id"),
))]
#[delete("/api/v1/app-conversations/{conversation_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(actor, PathParams(id)): ApiCall<Actor, PathParams<ConversationIdText>>,
) -> Result<web::Json<Success>, Problem> {
    let id = id.conversation_id.parse();
    let id = id.map_err(|_| Problem::bad_request("Invalid conversation ID format"))?;
    app.conversations.delete(&actor.scope(), id).await?;
    Ok(web::Json(Success::DONE))
}

/// Sends a message to the agent. Answers once the agent server has accepted it.
#[utoipa::path(tag = "Conversations", request_body = NextMessageDto, responses(
    (status = 200, body = SentMessageDto),
    (status = 409, description = "The sandbox is not running"),
    (status = 410, description = "The sandbox is deleted"),
    (status = 502, description = "The agent server failed, or cannot be reached"),
))]
#[post("/api/v1/app-conversations/{conversation_id}/send-message")]
pub(crate) async fn send_message(
    app: Application,
    ApiCall(actor, (PathParam(id), Body(message))): ConversationCall<Body<NextMessageDto>>,
) -> Result<web::Json<SentMessageDto>, Problem> {
    let sent = app
        .conversations
        .send_message(&actor.scope(), id, &message.into())
        .await?;
    Ok(web::Json(sent.into()))
}

async fn search_page(
    app: &Application,
    state: &State,
    actor: &Actor,
    query: ConversationSearchQuery,
) -> Result<PageDto<ConversationDto>, Problem> {
    let (filter, page) = query.into_parts();
    let found = match filter {
        Some(filter) => {
            app.conversations
                .search(&actor.scope(), &filter, &page)
                .await?
        }
        None => Page {
            items: Vec::new(),
            next: None,
        },
    };
    Ok(PageDto::of(found, |view| {
        ConversationDto::of(view, &app.sandboxes, &state.addresses)
    }))
}

/// Parses all ids, or returns the reference's error.
fn parse_ids(texts: &[String]) -> Result<Vec<ConversationId>, Problem> {
    if texts.len() > MAX_BATCH_IDS {
        return Err(Problem::bad_request(format!(
            "Too many ids requested. Maximum is {MAX_BATCH_IDS}."
        )));
    }
    let parsed = || texts.iter().map(|text| (text, text.parse()));
    let wrong: Vec<_> = parsed()
        .filter_map(|(text, id)| id.is_err().then(|| quoted(text)))
        .collect();
    if !wrong.is_empty() {
        let wrong = wrong.join(", ");
        return Err(Problem::bad_request(format!(
            "Invalid UUID format for ids: [{wrong}]"
        )));
    }
    Ok(parsed().filter_map(|(_, id)| id.ok()).collect())
}

/// Quotes a text like Python's `repr`: in single quotes unless only these occur in it. Long texts are cut.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in text.chars().take(64) {
        match c {
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}
