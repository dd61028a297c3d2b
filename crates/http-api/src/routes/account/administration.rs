//! Users and their keys, for administrators. Other callers get 403, whatever they name.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, delete, get, patch, post, web};
use domain::id::UserId;

use crate::dto::account::administration::{
    AccountDto, CreateKeyDto, CreatedKeyDto, KeyDto, NewUserDto, RotationDto, UserKeyParams,
    UserUpdateDto,
};
use crate::dto::page::PageQuery;
use crate::dto::{PageDto, Success};
use crate::extract::{
    Admin, ApiCall, Application, AuditOrigin, Body, OptionalBody, PathParam, PathParams, Query,
};
use crate::problem::Problem;

/// Lists users by name, including those whose deletion is not complete.
#[utoipa::path(tag = "Administration", params(PageQuery), responses((status = 200, body = PageDto<AccountDto>)))]
#[get("/api/v1/admin/users")]
pub(crate) async fn list(
    app: Application,
    ApiCall(_admin, Query(page)): ApiCall<Admin, Query<PageQuery>>,
) -> Result<web::Json<PageDto<AccountDto>>, Problem> {
    let found = app.administration.users(&page.into()).await?;
    Ok(web::Json(PageDto::of(found, AccountDto::from)))
}

/// Creates a user without keys.
#[utoipa::path(tag = "Administration", request_body = NewUserDto, responses(
    (status = 201, body = AccountDto),
    (status = 409, description = "The name is taken, or was freed recently"),
))]
#[post("/api/v1/admin/users")]
pub(crate) async fn create(
    app: Application,
    ApiCall(_admin, (origin, Body(input))): ApiCall<Admin, (AuditOrigin, Body<NewUserDto>)>,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let made = app
        .administration
        .create_user(&origin, &input.id, input.role);
    Ok(HttpResponse::Created().json(AccountDto::from(made.await?)))
}

/// Loads a user.
#[utoipa::path(tag = "Administration", responses((status = 200, body = AccountDto)))]
#[get("/api/v1/admin/users/{user_id}")]
pub(crate) async fn load(
    app: Application,
    ApiCall(_admin, PathParam(user)): ApiCall<Admin, PathParam<UserId>>,
) -> Result<web::Json<AccountDto>, Problem> {
    let found = app.administration.user(&user).await?;
    Ok(web::Json(found.into()))
}

/// Changes a user's role, disables them or enables them again. Administrators cannot remove their own role or disable
/// themselves.
#[utoipa::path(tag = "Administration", request_body = UserUpdateDto, responses(
    (status = 200, body = AccountDto),
    (status = 409, description = "The user is the caller"),
))]
#[patch("/api/v1/admin/users/{user_id}")]
pub(crate) async fn update(
    app: Application,
    ApiCall(_admin, (origin, PathParam(user), Body(input))): ApiCall<
        Admin,
        (AuditOrigin, PathParam<UserId>, Body<UserUpdateDto>),
    >,
) -> Result<web::Json<AccountDto>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let administration = &app.administration;
    if let Some(role) = input.role {
        administration.set_role(&origin, &user, role).await?;
    }
    let found = match input.disabled {
        Some(disabled) => {
            administration
                .set_disabled(&origin, &user, disabled)
                .await?
        }
        None => administration.user(&user).await?,
    };
    Ok(web::Json(found.into()))
}

/// Deletes a user with all their data, permanently; sandboxes follow shortly after. Callers cannot delete themselves.
#[utoipa::path(tag = "Administration", responses(
    (status = 200, body = Success),
    (status = 409, description = "The user is the caller"),
))]
#[delete("/api/v1/admin/users/{user_id}")]
pub(crate) async fn remove(
    app: Application,
    ApiCall(_admin, (origin, PathParam(user))): ApiCall<Admin, (AuditOrigin, PathParam<UserId>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.administration.delete_user(&origin, &user).await?;
    Ok(web::Json(Success::DONE))
}

/// Lists a user's keys, oldest first, all on one page.
#[utoipa::path(tag = "Administration", responses((status = 200, body = PageDto<KeyDto>)))]
#[get("/api/v1/admin/users/{user_id}/keys")]
pub(crate) async fn keys(
    app: Application,
    ApiCall(Admin(actor), PathParam(user)): ApiCall<Admin, PathParam<UserId>>,
) -> Result<web::Json<PageDto<KeyDto>>, Problem> {
    let administration = &app.administration;
    administration.user(&user).await?;
    let keys = administration.keys(&user).await?;
    let items = keys.into_iter().map(|key| KeyDto::of(key, actor.key));
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Creates a key for a user. Only this response contains its text.
#[utoipa::path(tag = "Administration", request_body = CreateKeyDto, responses(
    (status = 201, body = CreatedKeyDto),
    (status = 409, description = "The user has the maximum number of keys"),
))]
#[post("/api/v1/admin/users/{user_id}/keys")]
pub(crate) async fn create_key(
    app: Application,
    ApiCall(_admin, (origin, PathParam(user), OptionalBody(input))): ApiCall<
        Admin,
        (AuditOrigin, PathParam<UserId>, OptionalBody<CreateKeyDto>),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let options = input.unwrap_or_default().into();
    let made = app.administration.create_key(&origin, &user, &options);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Replaces one of a user's keys. The old key stays valid for a grace period.
#[utoipa::path(tag = "Administration", request_body = RotationDto, responses(
    (status = 201, body = CreatedKeyDto),
    (status = 409, description = "The key has expired, or the user has the maximum number of keys"),
))]
#[post("/api/v1/admin/users/{user_id}/keys/{key_id}/rotate")]
pub(crate) async fn rotate_key(
    app: Application,
    ApiCall(_admin, (origin, PathParams(key), OptionalBody(input))): ApiCall<
        Admin,
        (
            AuditOrigin,
            PathParams<UserKeyParams>,
            OptionalBody<RotationDto>,
        ),
    >,
) -> Result<HttpResponse, Problem> {
    let origin = origin.with_status(StatusCode::CREATED);
    let (options, grace) = RotationDto::into_parts(input);
    let user = owner(&key)?;
    let administration = &app.administration;
    let made = administration.rotate_key(&origin, &user, key.id, &options, grace);
    Ok(HttpResponse::Created().json(CreatedKeyDto::from(made.await?)))
}

/// Revokes a user's key within a second. The key of this request cannot be revoked.
#[utoipa::path(tag = "Administration", responses(
    (status = 200, body = Success),
    (status = 409, description = "The request uses this key"),
))]
#[delete("/api/v1/admin/users/{user_id}/keys/{key_id}")]
pub(crate) async fn revoke_key(
    app: Application,
    ApiCall(_admin, (origin, PathParams(key))): ApiCall<
        Admin,
        (AuditOrigin, PathParams<UserKeyParams>),
    >,
) -> Result<web::Json<Success>, Problem> {
    let (origin, user) = (origin.with_status(StatusCode::OK), owner(&key)?);
    app.administration
        .revoke_key(&origin, &user, key.id)
        .await?;
    Ok(web::Json(Success::DONE))
}

/// The user in the path; an invalid name answers 404.
fn owner(key: &UserKeyParams) -> Result<UserId, Problem> {
    UserId::parse(key.user.as_str()).map_err(|_| Problem::not_found())
}
