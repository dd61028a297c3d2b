//! Git tokens in the V1 API.

use actix_web::{delete, post, web};
use application::settings::UpdateError;

use crate::decode::Flavour;
use crate::dto::git_providers::{GitProviders, GitProvidersDto, errors_of};
use crate::dto::settings::Message;
use crate::extract::{Actor, Application, Body, Call};
use crate::problem::Problem;

/// Stores git tokens, provider by provider. No provider is contacted.
#[utoipa::path(
    tag = "Secrets",
    request_body = GitProvidersDto,
    responses((status = 200, description = "Stored", body = Message))
)]
#[post("/api/v1/secrets/git-providers")]
pub(super) async fn store(
    app: Application,
    Call(actor, Body(input)): Call<Actor, Body<GitProviders>>,
) -> Result<web::Json<Message>, Problem> {
    match app.settings.add_git_providers(&actor.user, &input.0).await {
        Ok(()) => Ok(web::Json(Message {
            message: "Git providers stored",
        })),
        Err(UpdateError::Refused(issues)) => {
            Err(Problem::invalid(&errors_of(&issues), Flavour::V1))
        }
        Err(UpdateError::Failed(error)) => Err(error.into()),
    }
}

/// Forgets all git tokens.
#[utoipa::path(tag = "Secrets", responses((status = 200, description = "Forgotten", body = Message)))]
#[delete("/api/v1/secrets/git-providers")]
pub(super) async fn unset(
    app: Application,
    Call(actor, ()): Call<Actor>,
) -> Result<web::Json<Message>, Problem> {
    app.settings.unset_git_providers(&actor.user).await?;
    Ok(web::Json(Message {
        message: "Unset Git provider tokens",
    }))
}
