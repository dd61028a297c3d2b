//! The settings and git-token operations of the legacy API. Errors have the legacy form.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, get, post, web};
use application::settings::Settings;
use serde_json::json;

use crate::decode::ErrorFormat;
use crate::dto::Message;
use crate::dto::configuration::git_providers::{
    AddGitProvidersDto, TokensRejectedDto, tokens_problem,
};
use crate::dto::configuration::settings::ErrorText;
use crate::dto::legacy::settings::{LegacySettingsDto, LegacySettingsUpdateDto};
use crate::dto::timestamped::{self, TimestampedJson};
use crate::extract::{ApiCall, Application, Body, LegacyActor, State};
use crate::problem::Problem;

/// Loads the user's settings; defaults if nothing is stored.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = LegacySettingsDto)))]
#[get("/api/settings")]
pub(crate) async fn load(
    app: Application,
    state: State,
    ApiCall(LegacyActor(actor), ()): ApiCall<LegacyActor>,
) -> Result<HttpResponse, Problem> {
    let memory = &state.settings_cache.legacy;
    let show = |settings: &Settings| TimestampedJson::of(|_| LegacySettingsDto::from(settings));
    let found = app.settings.cached_view(&actor.owner, memory, show).await?;
    let found = found.map_or_else(|| show(&Settings::default()).map(Arc::new), Ok)?;
    Ok(timestamped::json_response(
        found.at(state.ports.clock.now()),
    ))
}

/// Changes the settings in the body.
#[utoipa::path(tag = "Legacy", request_body = LegacySettingsUpdateDto, responses((status = 200, body = Message)))]
#[post("/api/settings")]
pub(crate) async fn store(
    app: Application,
    ApiCall(LegacyActor(actor), Body(input)): ApiCall<LegacyActor, Body<LegacySettingsUpdateDto>>,
) -> Result<web::Json<Message>, Problem> {
    app.settings
        .store_legacy(&actor.owner, &input.into())
        .await?;
    Ok(web::Json(Message::new("Settings stored")))
}

/// Stores git tokens by provider, and an MCP configuration. Each new token is checked with its provider, unless the
/// service is configured not to. A token whose provider does not answer is stored.
#[utoipa::path(tag = "Legacy", request_body = AddGitProvidersDto, responses(
    (status = 200, body = Message),
    (status = 401, description = "No key, or the provider rejects a token", body = TokensRejectedDto),
))]
#[post("/api/add-git-providers")]
pub(crate) async fn add_git_providers(
    app: Application,
    ApiCall(LegacyActor(actor), Body(input)): ApiCall<LegacyActor, Body<AddGitProvidersDto>>,
) -> Result<web::Json<Message>, Problem> {
    let update = input.into();
    let stored = app.settings.add_git_providers(&actor.owner, &update);
    stored
        .await
        .map_err(|error| tokens_problem(error, ErrorFormat::Legacy))?;
    Ok(web::Json(Message::new("Git providers stored")))
}

/// Deletes all git tokens.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = Message)))]
#[post("/api/unset-provider-tokens")]
pub(crate) async fn unset_provider_tokens(
    app: Application,
    ApiCall(LegacyActor(actor), ()): ApiCall<LegacyActor>,
) -> Result<web::Json<Message>, Problem> {
    app.settings.unset_git_providers(&actor.owner).await?;
    Ok(web::Json(Message::new("Unset Git provider tokens")))
}

/// Always answers 410, for old clients.
#[utoipa::path(tag = "Legacy", responses((status = 410, description = "Gone", body = ErrorText)))]
#[post("/api/reset-settings")]
pub(crate) async fn reset(
    ApiCall(_caller, ()): ApiCall<LegacyActor>,
) -> Result<web::Json<Message>, Problem> {
    let body = json!({"error": "Reset settings functionality has been removed."});
    Err(Problem::with_body(StatusCode::GONE, body))
}
