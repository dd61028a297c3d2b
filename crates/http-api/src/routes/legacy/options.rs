//! The choices that front ends of the 1.3 line offer in their settings.

use actix_web::{get, web};
use application::catalogue::ModelCatalogue;

use crate::dto::configuration::web_client::LegacyWebClientDto;
use crate::extract::{ApiCall, LegacyActor, State};

/// The only agent that can be chosen by name; the agent server defines what it does.
const AGENTS: [&str; 1] = ["CodeActAgent"];
/// The values of `security_analyzer` beside none.
const ANALYZERS: [&str; 1] = ["llm"];

/// Lists the names of models, sorted.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = Vec<String>)))]
#[get("/api/options/models")]
pub(crate) async fn models(
    ApiCall(_actor, ()): ApiCall<LegacyActor>,
) -> web::Json<Vec<&'static str>> {
    web::Json(ModelCatalogue::embedded().names())
}

/// Lists the names of agents.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = Vec<String>)))]
#[get("/api/options/agents")]
pub(crate) async fn agents(
    ApiCall(_actor, ()): ApiCall<LegacyActor>,
) -> web::Json<[&'static str; 1]> {
    web::Json(AGENTS)
}

/// Lists the names of security analyzers.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = Vec<String>)))]
#[get("/api/options/security-analyzers")]
pub(crate) async fn security_analyzers(
    ApiCall(_actor, ()): ApiCall<LegacyActor>,
) -> web::Json<[&'static str; 1]> {
    web::Json(ANALYZERS)
}

/// Loads the configuration of web front ends.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = LegacyWebClientDto)))]
#[get("/api/options/config")]
pub(crate) async fn config(
    state: State,
    ApiCall(_actor, ()): ApiCall<LegacyActor>,
) -> web::Json<LegacyWebClientDto> {
    web::Json(state.legacy_web_client.clone())
}
