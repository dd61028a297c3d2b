//! The user's secrets in the V1 API. No response contains a value.

use actix_web::{HttpResponse, delete, get, post, put, web};

use crate::dto::configuration::secret::{
    NewSecretDto, SecretDto, SecretName, SecretQuery, SecretUpdateDto,
};
use crate::dto::page::{PageQuery, Paged};
use crate::dto::{Message, PageDto};
use crate::extract::{Actor, ApiCall, Application, Body, PathParam, Query};
use crate::problem::Problem;

/// Searches secrets, ordered by name.
#[utoipa::path(tag = "Secrets", params(SecretQuery, PageQuery), responses((status = 200, body = PageDto<SecretDto>)))]
#[get("/api/v1/secrets/search")]
pub(crate) async fn search(
    app: Application,
    ApiCall(actor, Query(Paged { query, page })): ApiCall<Actor, Query<Paged<SecretQuery>>>,
) -> Result<web::Json<PageDto<SecretDto>>, Problem> {
    let (contains, page) = (query.name_contains.as_deref(), page.into());
    let found = app.secrets.search(&actor.owner, contains, &page).await?;
    Ok(web::Json(PageDto::of(found, SecretDto::with_exposure)))
}

/// Stores a secret, or replaces the value (and description, if given) of the one with this name.
#[utoipa::path(tag = "Secrets", request_body = NewSecretDto, responses(
    (status = 201, body = Message),
    (status = 409, description = "The user has the maximum number of secrets"),
))]
#[post("/api/v1/secrets")]
pub(crate) async fn create(
    app: Application,
    ApiCall(actor, Body(input)): ApiCall<Actor, Body<NewSecretDto>>,
) -> Result<HttpResponse, Problem> {
    app.secrets.put(&actor.owner, &input.into()).await?;
    Ok(HttpResponse::Created().json(Message::new("Secret created successfully")))
}

/// Renames or describes a secret. It keeps its value unless the body contains one.
#[utoipa::path(tag = "Secrets", request_body = SecretUpdateDto, responses((status = 200, body = Message)))]
#[put("/api/v1/secrets/{secret_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(actor, (PathParam(name), Body(input))): ApiCall<
        Actor,
        (PathParam<SecretName>, Body<SecretUpdateDto>),
    >,
) -> Result<web::Json<Message>, Problem> {
    let update = input.into();
    app.secrets.update(&actor.owner, &name.0, &update).await?;
    Ok(web::Json(Message::new("Secret updated successfully")))
}

/// Deletes a secret.
#[utoipa::path(tag = "Secrets", responses((status = 200, body = Message)))]
#[delete("/api/v1/secrets/{secret_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(actor, PathParam(name)): ApiCall<Actor, PathParam<SecretName>>,
) -> Result<web::Json<Message>, Problem> {
    app.secrets.delete(&actor.owner, &name.0).await?;
    Ok(web::Json(Message::new("Secret deleted successfully")))
}
