//! Conversations under the paths of front ends of the 1.0 to 1.3 line: views of the same conversations.
//!
//! Agent servers have the same paths, for holders of a sandbox's key. [`LegacyFrontEnd`] is the one place that distinguishes
//! the two; see `docs/explanation/decisions/0028-keep-existing-clients-working.md`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, delete, get, patch, web};
use domain::conversation::ConversationView;

use crate::dto::conversation::record::ConversationIdText;
use crate::dto::legacy::conversation::{
    LegacyConversationDto, LegacyConversationsDto, LegacyId, LegacyListQuery, LegacyProblemDto,
    LegacyTitleDto, RuntimeConfigDto,
};
use crate::extract::{
    Actor, ApiCall, Application, Body, Caller, PathParams, Query, State, UserOrSandbox,
};
use crate::problem::Problem;

/// A user, on a path that agent servers also have.
#[derive(Debug)]
pub(crate) struct LegacyFrontEnd(Actor);

impl Caller for LegacyFrontEnd {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        match UserOrSandbox::identify(req).await? {
            UserOrSandbox::User(actor) => Ok(Self(actor)),
            // A holder of this key means the agent server's conversation, which is not here.
            UserOrSandbox::Sandbox(_) => Err(Problem::not_found()),
        }
    }
}

type LegacyConversationCall = ApiCall<LegacyFrontEnd, PathParams<ConversationIdText>>;

/// The conversation with this id, if it exists.
async fn find(
    app: &Application,
    actor: &Actor,
    id: &LegacyId,
) -> Result<Option<ConversationView>, Problem> {
    let Some(id) = id.id else { return Ok(None) };
    let found = app.conversations.find_many(&actor.scope(), &[id]).await?;
    Ok(found.into_iter().next().flatten())
}

fn read(id: ConversationIdText) -> Result<LegacyId, Problem> {
    LegacyId::parse(id.conversation_id).map_err(Problem::bad_request)
}

/// Lists conversations, newest first.
#[utoipa::path(tag = "Conversations of older front ends", params(LegacyListQuery), responses(
    (status = 200, body = LegacyConversationsDto),
))]
#[get("/api/conversations")]
pub(crate) async fn list(
    app: Application,
    state: State,
    ApiCall(LegacyFrontEnd(actor), Query(query)): ApiCall<LegacyFrontEnd, Query<LegacyListQuery>>,
) -> Result<web::Json<LegacyConversationsDto>, Problem> {
    let Some((filter, page)) = query.into_parts() else {
        return Ok(web::Json(LegacyConversationsDto::NONE));
    };
    let scope = actor.scope();
    let found = app.conversations.search(&scope, &filter, &page).await?;
    Ok(web::Json(LegacyConversationsDto::of(
        found,
        &app.sandboxes,
        &state.addresses,
    )))
}

/// Loads a conversation; `null` for an unknown one, and for the `task-…` ids that front ends request during a start.
#[utoipa::path(tag = "Conversations of older front ends", params(("conversation_id" = String, Path)), responses(
    (status = 200, body = Option<LegacyConversationDto>),
    (status = 400, description = "Invalid id"),
))]
#[get("/api/conversations/{conversation_id}")]
pub(crate) async fn load(
    app: Application,
    state: State,
    ApiCall(LegacyFrontEnd(actor), PathParams(id)): LegacyConversationCall,
) -> Result<web::Json<Option<LegacyConversationDto>>, Problem> {
    let found = find(&app, &actor, &read(id)?).await?;
    let shown = found.map(|view| LegacyConversationDto::of(view, &app.sandboxes, &state.addresses));
    Ok(web::Json(shown))
}

/// Loads the sandbox of a conversation.
#[utoipa::path(tag = "Conversations of older front ends", params(("conversation_id" = String, Path)), responses(
    (status = 200, body = RuntimeConfigDto),
    (status = 400, description = "Invalid id"),
))]
#[get("/api/conversations/{conversation_id}/config")]
pub(crate) async fn config(
    app: Application,
    ApiCall(LegacyFrontEnd(actor), PathParams(id)): LegacyConversationCall,
) -> Result<web::Json<RuntimeConfigDto>, Problem> {
    let id = read(id)?;
    let found = find(&app, &actor, &id).await?;
    let missing = || Problem::missing(format!("Conversation {} not found", id.text));
    let conversation = found.ok_or_else(missing)?.conversation;
    Ok(web::Json(RuntimeConfigDto {
        runtime_id: conversation.sandbox_id,
        session_id: conversation.id,
    }))
}

/// Changes the title.
#[utoipa::path(
    tag = "Conversations of older front ends",
    params(("conversation_id" = String, Path)),
    request_body = LegacyTitleDto,
    responses(
        (status = 200, description = "Always `true`", body = bool, content_type = "application/json"),
        (status = 400, description = "Invalid id"),
        (status = 404, description = "No such conversation", body = LegacyProblemDto),
    )
)]
#[patch("/api/conversations/{conversation_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(LegacyFrontEnd(actor), (PathParams(id), Body(update))): ApiCall<
        LegacyFrontEnd,
        (PathParams<ConversationIdText>, Body<LegacyTitleDto>),
    >,
) -> Result<web::Json<bool>, Problem> {
    let found = find(&app, &actor, &read(id)?).await?;
    let view = found.ok_or_else(|| {
        let body = serde_json::to_value(LegacyProblemDto::NOT_FOUND).unwrap_or_default();
        Problem::with_body(StatusCode::NOT_FOUND, body)
    })?;
    let id = view.conversation.id;
    app.conversations
        .update(&actor.scope(), id, &update.into())
        .await?;
    Ok(web::Json(true))
}

/// Deletes a conversation with its parts, and its sandbox if no other conversation uses it.
#[utoipa::path(tag = "Conversations of older front ends", params(("conversation_id" = String, Path)), responses(
    (status = 200, description = "Whether it existed", body = bool, content_type = "application/json"),
    (status = 400, description = "Invalid id"),
))]
#[delete("/api/conversations/{conversation_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(LegacyFrontEnd(actor), PathParams(id)): LegacyConversationCall,
) -> Result<web::Json<bool>, Problem> {
    let Some(view) = find(&app, &actor, &read(id)?).await? else {
        return Ok(web::Json(false));
    };
    let (scope, id) = (actor.scope(), view.conversation.id);
    app.conversations.delete(&scope, id).await?;
    Ok(web::Json(true))
}
