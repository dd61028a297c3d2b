//! One-time links by which users set a password, for administrators.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post};
use domain::id::UserId;

use crate::browser_session;
use crate::dto::account::link::PasswordLinkDto;
use crate::extract::{Admin, ApiCall, Application, AuditOrigin, PathParam, State};
use crate::problem::Problem;

/// Creates a one-time link by which the user sets a password: an invitation, or a reset. Only this response contains it. Its
/// holder becomes the user.
#[utoipa::path(tag = "Administration", responses(
    (status = 201, body = PasswordLinkDto),
    (status = 404, description = "There is no such user, or users of this service do not sign in"),
))]
#[post("/api/v1/admin/users/{user_id}/password-link")]
pub(crate) async fn create(
    req: HttpRequest,
    app: Application,
    state: State,
    ApiCall(_admin, (origin, PathParam(user))): ApiCall<Admin, (AuditOrigin, PathParam<UserId>)>,
) -> Result<HttpResponse, Problem> {
    browser_session::sessions_of(&req)?;
    let origin = origin.with_status(StatusCode::CREATED);
    let made = app.sign_in.create_link(&origin, &user).await?;
    let link = PasswordLinkDto::of(made, &state.addresses);
    Ok(HttpResponse::Created().json(link))
}
