//! The usage and quotas of users.

use actix_web::{get, web};
use domain::id::{OwnerId, UserId};

use crate::dto::account::usage::UsageDto;
use crate::extract::{Actor, Admin, ApiCall, Application, PathParam};
use crate::problem::Problem;

/// Loads the caller's usage and quotas.
#[utoipa::path(tag = "Users", responses((status = 200, body = UsageDto)))]
#[get("/api/v1/usage")]
pub(crate) async fn own(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<UsageDto>, Problem> {
    Ok(web::Json(app.quotas.usage(&actor.owner).await?.into()))
}

/// Loads a user's usage and quotas.
#[utoipa::path(tag = "Administration", responses((status = 200, body = UsageDto)))]
#[get("/api/v1/admin/users/{user_id}/usage")]
pub(crate) async fn of_user(
    app: Application,
    ApiCall(_admin, PathParam(user)): ApiCall<Admin, PathParam<UserId>>,
) -> Result<web::Json<UsageDto>, Problem> {
    app.administration.user(&user).await?;
    Ok(web::Json(
        app.quotas.usage(&OwnerId::from(&user)).await?.into(),
    ))
}
