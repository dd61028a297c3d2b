//! Git tokens in the V1 API.

use actix_web::{delete, post, web};

use crate::decode::ErrorFormat;
use crate::dto::Message;
use crate::dto::configuration::git_providers::{
    GitProvidersDto, TokensRejectedDto, TokensStoredDto, tokens_problem,
};
use crate::extract::{Actor, ApiCall, Application, Body};
use crate::problem::Problem;

/// Stores git tokens by provider. Each new token is checked with its provider, unless the service is configured not to. A
/// token whose provider does not answer is stored, with a note.
#[utoipa::path(tag = "Secrets", request_body = GitProvidersDto, responses(
    (status = 200, body = TokensStoredDto),
    (status = 401, description = "No key, or the provider rejects a token", body = TokensRejectedDto),
))]
#[post("/api/v1/secrets/git-providers")]
pub(crate) async fn store(
    app: Application,
    ApiCall(actor, Body(input)): ApiCall<Actor, Body<GitProvidersDto>>,
) -> Result<web::Json<TokensStoredDto>, Problem> {
    let update = input.into();
    let stored = app.settings.add_git_providers(&actor.owner, &update);
    let unverified = stored
        .await
        .map_err(|error| tokens_problem(error, ErrorFormat::V1))?;
    Ok(web::Json(TokensStoredDto::new(&unverified)))
}

/// Deletes all git tokens.
#[utoipa::path(tag = "Secrets", responses((status = 200, body = Message)))]
#[delete("/api/v1/secrets/git-providers")]
pub(crate) async fn unset(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor>,
) -> Result<web::Json<Message>, Problem> {
    app.settings.unset_git_providers(&actor.owner).await?;
    Ok(web::Json(Message::new("Unset Git provider tokens")))
}
