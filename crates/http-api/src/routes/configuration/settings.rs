//! The settings of the V1 API. Errors of these routes have the member `error` instead of `detail`.

use std::sync::Arc;

use actix_web::{HttpResponse, get, post, web};
use application::settings::{
    McpConfigUpdate, Settings, UpdateError, agent_schema, conversation_schema,
};
use domain::clock::Timestamp;
use domain::id::OwnerId;
use serde_json::Value;

use crate::decode::JsonObject;
use crate::dto::Message;
use crate::dto::configuration::settings::{
    ErrorText, SettingsDto, SettingsUpdateDto, settings_problem,
};
use crate::dto::timestamped::{TimestampedJson, json_response};
use crate::extract::{Actor, ApiCall, Application, Body, ClientKind, State};
use crate::problem::Problem;

/// Loads the user's settings. If nothing is stored: the defaults with `X-Org-Id`, otherwise 404.
#[utoipa::path(tag = "Settings", responses(
    (status = 200, body = SettingsDto),
    (status = 404, description = "Nothing stored yet", body = ErrorText),
))]
#[get("/api/v1/settings")]
pub(crate) async fn load(
    app: Application,
    state: State,
    ApiCall(actor, client): ApiCall<Actor, ClientKind>,
) -> Result<HttpResponse, Problem> {
    let shown = shown_settings(&app, &state, &actor.owner, client).await;
    let shown = shown.map_err(Problem::in_error_family)?;
    Ok(json_response(shown.at(state.ports.clock.now())))
}

async fn shown_settings(
    app: &Application,
    state: &State,
    user: &OwnerId,
    client: ClientKind,
) -> Result<Arc<TimestampedJson>, Problem> {
    let (memory, show): (_, fn(&Settings, Timestamp) -> SettingsDto) = match client {
        ClientKind::FrontEnd => (&state.settings_cache.front_end, SettingsDto::for_front_end),
        ClientKind::Other => (&state.settings_cache.v1, |settings, now| {
            SettingsDto::of(settings, now)
        }),
    };
    let show = |settings: &Settings| TimestampedJson::of(|now| show(settings, now));
    match (app.settings.cached_view(user, memory, show).await?, client) {
        (Some(found), _) => Ok(found),
        (None, ClientKind::FrontEnd) => Ok(Arc::new(show(&Settings::default())?)),
        (None, ClientKind::Other) => Err(Problem::missing("Settings not found")),
    }
}

/// Changes the settings in the body. `null` or `""` clears a secret; its mask keeps it.
#[utoipa::path(tag = "Settings", request_body = SettingsUpdateDto, responses(
    (status = 200, body = Message),
    (status = 400, description = "Invalid values", body = ErrorText),
    (status = 422, description = "Legacy keys, or not an object", body = ErrorText),
))]
#[post("/api/v1/settings")]
pub(crate) async fn store(
    app: Application,
    ApiCall(actor, (client, Body(input))): ApiCall<Actor, (ClientKind, Body<JsonObject>)>,
) -> Result<web::Json<Message>, Problem> {
    let mcp = match client {
        ClientKind::FrontEnd => McpConfigUpdate::Merge,
        ClientKind::Other => McpConfigUpdate::Replace,
    };
    match app.settings.update_v1(&actor.owner, &input.0, mcp).await {
        Ok(()) => Ok(web::Json(Message::new("Settings stored"))),
        Err(UpdateError::Refused(refusal)) => Err(settings_problem(refusal)),
        Err(UpdateError::Failed(error)) => Err(Problem::from(error).in_error_family()),
    }
}

/// Describes the fields of `agent_settings`.
#[utoipa::path(tag = "Settings", responses((status = 200, body = Object)))]
#[get("/api/v1/settings/agent-schema")]
pub(crate) async fn agent(ApiCall(_caller, ()): ApiCall<Actor>) -> web::Json<Value> {
    web::Json(agent_schema())
}

/// Describes the fields of `conversation_settings`.
#[utoipa::path(tag = "Settings", responses((status = 200, body = Object)))]
#[get("/api/v1/settings/conversation-schema")]
pub(crate) async fn conversation(ApiCall(_caller, ()): ApiCall<Actor>) -> web::Json<Value> {
    web::Json(conversation_schema())
}
