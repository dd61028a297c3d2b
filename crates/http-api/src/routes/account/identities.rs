//! The caller's identities at identity providers. `/oauth/{provider}/login?link=1` links one.

use actix_web::http::StatusCode;
use actix_web::{delete, get, web};
use domain::id::IdentityId;

use crate::dto::account::identity::LinkedIdentityDto;
use crate::dto::{PageDto, Success};
use crate::extract::{Actor, ApiCall, Application, AuditOrigin, PathParam};
use crate::problem::Problem;

/// Lists the caller's identities at identity providers, oldest first, all on one page.
#[utoipa::path(tag = "Sessions", responses((status = 200, body = PageDto<LinkedIdentityDto>)))]
#[get("/api/v1/users/me/identities")]
pub(crate) async fn list(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<PageDto<LinkedIdentityDto>>, Problem> {
    let identities = app.single_sign_on.identities(&actor.user).await?;
    let items = identities.into_iter().map(LinkedIdentityDto::from);
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Unlinks an identity from the caller, and ends the caller's other sessions.
#[utoipa::path(tag = "Sessions", responses(
    (status = 200, body = Success),
    (status = 409, description = "It is the caller's only way to sign in"),
))]
#[delete("/api/v1/users/me/identities/{identity_id}")]
pub(crate) async fn unlink(
    app: Application,
    ApiCall(actor, (origin, PathParam(id))): ApiCall<Actor, (AuditOrigin, PathParam<IdentityId>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.single_sign_on.unlink(&origin, &actor, id).await?;
    Ok(web::Json(Success::DONE))
}
