//! The user's secrets in the legacy API. Errors have the member `error` for unknown secrets, and `message` for taken names.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, delete, get, post, put, web};
use serde_json::{Value, json};

use crate::dto::Message;
use crate::dto::configuration::secret::{
    NewSecretDto, SecretDto, SecretName, SecretUpdateDto, SecretsDto,
};
use crate::dto::configuration::settings::ErrorText;
use crate::extract::{ApiCall, Application, Body, LegacyActor, PathParam};
use crate::problem::Problem;

/// Lists the secrets, oldest first, without their values.
#[utoipa::path(tag = "Legacy", responses((status = 200, body = SecretsDto)))]
#[get("/api/secrets")]
pub(crate) async fn list(
    app: Application,
    ApiCall(LegacyActor(actor), ()): ApiCall<LegacyActor>,
) -> Result<web::Json<SecretsDto>, Problem> {
    let all = app.secrets.list(&actor.owner).await?;
    Ok(web::Json(SecretsDto {
        custom_secrets: all.into_iter().map(SecretDto::from).collect(),
    }))
}

/// Stores a secret under a name that is not taken.
#[utoipa::path(tag = "Legacy", request_body = NewSecretDto, responses(
    (status = 201, body = Message),
    (status = 400, description = "The name is taken", body = Message),
    (status = 409, description = "The user has the maximum number of secrets"),
))]
#[post("/api/secrets")]
pub(crate) async fn create(
    app: Application,
    ApiCall(LegacyActor(actor), Body(input)): ApiCall<LegacyActor, Body<NewSecretDto>>,
) -> Result<HttpResponse, Problem> {
    let created = app.secrets.create(&actor.owner, &input.into()).await;
    created.map_err(|error| in_legacy_form(error.into()))?;
    Ok(HttpResponse::Created().json(Message::new("Secret created successfully")))
}

/// Renames or describes a secret. It keeps its value unless the body contains one.
#[utoipa::path(tag = "Legacy", request_body = SecretUpdateDto, responses(
    (status = 200, body = Message),
    (status = 400, description = "The new name is taken", body = Message),
    (status = 404, description = "No secret has this name", body = ErrorText),
))]
#[put("/api/secrets/{secret_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(LegacyActor(actor), (PathParam(name), Body(input))): ApiCall<
        LegacyActor,
        (PathParam<SecretName>, Body<SecretUpdateDto>),
    >,
) -> Result<web::Json<Message>, Problem> {
    let update = input.into();
    let updated = app.secrets.update(&actor.owner, &name.0, &update).await;
    updated.map_err(|error| in_legacy_form(error.into()))?;
    Ok(web::Json(Message::new("Secret updated successfully")))
}

/// Deletes a secret.
#[utoipa::path(tag = "Legacy", responses(
    (status = 200, body = Message),
    (status = 404, description = "No secret has this name", body = ErrorText),
))]
#[delete("/api/secrets/{secret_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(LegacyActor(actor), PathParam(name)): ApiCall<LegacyActor, PathParam<SecretName>>,
) -> Result<web::Json<Message>, Problem> {
    let deleted = app.secrets.delete(&actor.owner, &name.0).await;
    deleted.map_err(|error| in_legacy_form(error.into()))?;
    Ok(web::Json(Message::new("Secret deleted successfully")))
}

/// Moves the text to `error` for an unknown secret, and to `message` for a taken name.
fn in_legacy_form(problem: Problem) -> Problem {
    match problem.status() {
        StatusCode::NOT_FOUND => problem.in_error_family(),
        StatusCode::BAD_REQUEST => {
            let text = problem.body().get("detail").cloned().unwrap_or(Value::Null);
            Problem::with_body(StatusCode::BAD_REQUEST, json!({"message": text}))
        }
        _ => problem,
    }
}
