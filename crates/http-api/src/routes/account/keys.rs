//! The caller's own API keys. `Idempotency-Key` is not supported: the response contains the key's text, which must not be
//! stored.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, delete, get, post, web};
use application::administration::KeyOptions;
use domain::id::ApiKeyId;
use domain::user::identity::ApiKey;

use crate::dto::account::administration::{CreateKeyDto, CreatedKeyDto, KeyDto, RotationDto};
use crate::dto::{PageDto, Success};
use crate::extract::{Actor, ApiCall, Application, AuditOrigin, OptionalBody, PathParam};
use crate::problem::Problem;

/// Lists the caller's keys, oldest first, all on one page.
#[utoipa::path(tag = "Keys", responses((status = 200, body = PageDto<KeyDto>)))]
#[get("/api/v1/keys")]
pub(crate) async fn list(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<PageDto<KeyDto>>, Problem> {
    let keys = app.administration.keys(&actor.user).await?;
    let is_visible = |key: &ApiKey| actor.bound_to.is_none_or(|id| key.organization == Some(id));
    let items = keys
        .into_iter()
        .filter(is_visible)
        .map(|key| KeyDto::of(key, actor.key));
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Creates a key for the caller. Only this response contains its text.
#[utoipa::path(tag = "Keys", request_body = CreateKeyDto, responses(
    (status = 201, body = CreatedKeyDto),
    (status = 404, description = "The caller is no member of the organization"),
    (status = 409, description = "The user has the maximum number of keys"),
))]
#[post("/api/v1/keys")]
pub(crate) async fn create(
    app: Application,
    ApiCall(actor, (origin, OptionalBody(input))): ApiCall<
        Actor,
        (AuditOrigin, OptionalBody<CreateKeyDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let mut options = KeyOptions::from(input.unwrap_or_default());
    // A bound key makes keys for its organization only.
    options.organization = options.organization.or(actor.bound_to);
    let made = app
        .administration
        .create_key(&origin, &actor.user, &options);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Replaces one of the caller's keys. The old key stays valid for a grace period. Only this response contains the text of
/// the new key.
#[utoipa::path(tag = "Keys", request_body = RotationDto, responses(
    (status = 201, body = CreatedKeyDto),
    (status = 409, description = "The key has expired, or the user has the maximum number of keys"),
))]
#[post("/api/v1/keys/{key_id}/rotate")]
pub(crate) async fn rotate(
    app: Application,
    ApiCall(actor, (origin, PathParam(id), OptionalBody(input))): ApiCall<
        Actor,
        (AuditOrigin, PathParam<ApiKeyId>, OptionalBody<RotationDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let (options, grace) = RotationDto::into_parts(input);
    let administration = &app.administration;
    let made = administration.rotate_key(&origin, &actor.user, id, &options, grace);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Revokes one of the caller's keys within a second. The key of this request cannot be revoked.
#[utoipa::path(tag = "Keys", responses(
    (status = 200, body = Success),
    (status = 409, description = "The request uses this key"),
))]
#[delete("/api/v1/keys/{key_id}")]
pub(crate) async fn revoke(
    app: Application,
    ApiCall(actor, (origin, PathParam(id))): ApiCall<Actor, (AuditOrigin, PathParam<ApiKeyId>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.administration
        .revoke_key(&origin, &actor.user, id)
        .await?;
    Ok(web::Json(Success::DONE))
}
