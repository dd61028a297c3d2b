//! The settings of the V1 API. Errors of these routes have the member `error` instead of `detail`.

use actix_web::{HttpResponse, get, post, web};
use application::settings::{Settings, UpdateError, agent_schema, conversation_schema};
use serde_json::Value;

use crate::decode::JsonObject;
use crate::dto::Message;
use crate::dto::configuration::settings::{
    ErrorText, SettingsDto, SettingsUpdateDto, settings_problem,
};
use crate::dto::timestamped::{TimestampedJson, json_response};
use crate::extract::{Actor, ApiCall, Application, Body, State};
use crate::problem::Problem;

/// Loads the user's settings; 404 if nothing is stored.
#[utoipa::path(tag = "Settings", responses(
    (status = 200, body = SettingsDto),
    (status = 404, description = "Nothing stored yet", body = ErrorText),
))]
#[get("/api/v1/settings")]
pub(crate) async fn load(
    app: Application,
    state: State,
    ApiCall(actor, ()): ApiCall<Actor>,
) -> Result<HttpResponse, Problem> {
    let memory = &state.settings_cache.v1;
    let show = |settings: &Settings| TimestampedJson::of(|now| SettingsDto::of(settings, now));
    let found = app.settings.cached_view(&actor.user, memory, show).await;
    let found = found
        .and_then(|found| found.ok_or_else(|| Problem::missing("Settings not found")))
        .map_err(Problem::in_error_family)?;
    Ok(json_response(found.at(state.ports.clock.now())))
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
    ApiCall(actor, Body(input)): ApiCall<Actor, Body<JsonObject>>,
) -> Result<web::Json<Message>, Problem> {
    match app.settings.update_v1(&actor.user, &input.0).await {
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
