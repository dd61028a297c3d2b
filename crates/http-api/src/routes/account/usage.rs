//! What users store, and may store.

use actix_web::{get, web};

use crate::dto::account::administration::UserIdParam;
use crate::dto::account::usage::UsageDto;
use crate::extract::{Actor, Admin, Application, Call, PathParam};
use crate::problem::{Detail, Problem};

/// What is stored of the caller, and what may be.
#[utoipa::path(
    tag = "Users",
    responses((status = 200, description = "The figures and the limits", body = UsageDto))
)]
#[get("/api/v1/usage")]
pub(crate) async fn own(
    app: Application,
    Call(actor, ()): Call<Actor, ()>,
) -> Result<web::Json<UsageDto>, Problem> {
    Ok(web::Json(app.quotas.usage(&actor.user).await?.into()))
}

/// What is stored of a user, and what may be.
#[utoipa::path(
    tag = "Administration",
    params(("user_id" = String, Path)),
    responses(
        (status = 200, description = "The figures and the limits", body = UsageDto),
        (status = 403, description = "The caller is no administrator", body = Detail),
    )
)]
#[get("/api/v1/admin/users/{user_id}/usage")]
pub(crate) async fn of_user(
    app: Application,
    Call(_admin, PathParam(UserIdParam(user))): Call<Admin, PathParam<UserIdParam>>,
) -> Result<web::Json<UsageDto>, Problem> {
    app.administration.user(&user).await?;
    Ok(web::Json(app.quotas.usage(&user).await?.into()))
}
