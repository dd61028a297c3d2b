//! The caller's own API keys. `Idempotency-Key` is not taken: the answer has the key's text, which is not to be kept.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, delete, get, post, web};
use domain::id::ApiKeyId;

use crate::dto::account::administration::{
    KeyDto, CreateKeyDto, CreateKeyInput, CreatedKeyDto, RotationDto, RotationInput,
};
use crate::dto::{PageDto, Success};
use crate::extract::{Actor, Application, Call, OptionalBody, AuditOrigin, PathParam};
use crate::problem::{Detail, Problem};

/// Lists the caller's keys, oldest first: all on one page.
#[utoipa::path(
    tag = "Keys",
    responses((status = 200, description = "All keys", body = PageDto<KeyDto>))
)]
#[get("/api/v1/keys")]
pub(crate) async fn list(
    app: Application,
    Call(actor, ()): Call<Actor, ()>,
) -> Result<web::Json<PageDto<KeyDto>>, Problem> {
    let keys = app.administration.keys(&actor.user).await?;
    let items = keys.into_iter().map(|key| KeyDto::of(key, actor.key));
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Makes a key for the caller. Its text is in this answer and never again.
#[utoipa::path(
    tag = "Keys",
    request_body = CreateKeyDto,
    responses(
        (status = 201, description = "The key", body = CreatedKeyDto),
        (status = 409, description = "The user has as many as one may have", body = Detail),
    )
)]
#[post("/api/v1/keys")]
pub(crate) async fn create(
    app: Application,
    Call(actor, (origin, OptionalBody(input))): Call<Actor, (AuditOrigin, OptionalBody<CreateKeyInput>)>,
) -> Result<HttpResponse, Problem> {
    let (origin, wish) = (
        origin.with_status(StatusCode::CREATED),
        input.unwrap_or_default().0,
    );
    let made = app.administration.create_key(&origin, &actor.user, &wish);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Makes a key in the place of one of the caller's, which goes on to work for a while. The text of the new key is in this
/// answer and never again.
#[utoipa::path(
    tag = "Keys",
    params(("key_id" = Uuid, Path)),
    request_body = RotationDto,
    responses(
        (status = 201, description = "The new key", body = CreatedKeyDto),
        (status = 409, description = "The key has expired, or the user has as many as one may have", body = Detail),
    )
)]
#[post("/api/v1/keys/{key_id}/rotate")]
pub(crate) async fn rotate(
    app: Application,
    Call(actor, (origin, PathParam(id), OptionalBody(input))): Call<
        Actor,
        (AuditOrigin, PathParam<ApiKeyId>, OptionalBody<RotationInput>),
    >,
) -> Result<HttpResponse, Problem> {
    let (origin, input) = (origin.with_status(StatusCode::CREATED), input.unwrap_or_default());
    let administration = &app.administration;
    let made = administration.rotate_key(&origin, &actor.user, id, &input.wish, input.grace);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Revokes one of the caller's keys: it opens nothing any more, at the latest after a second. Not the one that this request
/// came with.
#[utoipa::path(
    tag = "Keys",
    params(("key_id" = Uuid, Path)),
    responses(
        (status = 200, description = "Revoked", body = Success),
        (status = 409, description = "It is the key of this request", body = Detail),
    )
)]
#[delete("/api/v1/keys/{key_id}")]
pub(crate) async fn revoke(
    app: Application,
    Call(actor, (origin, PathParam(id))): Call<Actor, (AuditOrigin, PathParam<ApiKeyId>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.administration
        .revoke_key(&origin, &actor.user, id)
        .await?;
    Ok(web::Json(Success::DONE))
}
