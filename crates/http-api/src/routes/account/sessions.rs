//! The caller's sessions and password.

use actix_web::http::StatusCode;
use actix_web::http::header::SET_COOKIE;
use actix_web::{HttpRequest, HttpResponse, ResponseError as _, delete, get, post, web};
use domain::id::SessionId;

use crate::browser_session::{self, BrowserSessions};
use crate::dto::account::session::{PasswordChangeDto, SessionDto};
use crate::dto::{PageDto, Success};
use crate::extract::{
    Actor, ApiCall, Application, AuditOrigin, Body, ClientAddress, PathParam, State,
    identify_caller,
};
use crate::problem::Problem;
use crate::rate_limit::client_network;

/// Says whether the caller is signed in. Removes the cookie of a session that has ended.
#[utoipa::path(tag = "Sessions", responses((status = 204, description = "The caller is known")))]
#[post("/api/authenticate")]
pub(crate) async fn authenticate(req: HttpRequest, state: State) -> Result<HttpResponse, Problem> {
    // Not an `ApiCall`: its error could not remove the cookie.
    match identify_caller::<Actor>(&req).await {
        Ok(_) => Ok(HttpResponse::NoContent().finish()),
        Err(problem) => refuse(&req, state.browser_sessions.as_ref(), problem),
    }
}

/// Ends the session of the request, and removes its cookie.
#[utoipa::path(tag = "Sessions", responses((status = 204, description = "The session has ended")))]
#[post("/api/logout")]
pub(crate) async fn log_out(
    req: HttpRequest,
    app: Application,
    state: State,
) -> Result<HttpResponse, Problem> {
    let sessions = state.browser_sessions.as_ref();
    let actor = match identify_caller::<Actor>(&req).await {
        Ok(actor) => actor,
        Err(problem) => return refuse(&req, sessions, problem),
    };
    let mut answer = HttpResponse::NoContent();
    if let (Some(_), Some(token)) = (actor.session, browser_session::token_of(&req)) {
        let origin = AuditOrigin::of(&req).with_status(StatusCode::NO_CONTENT);
        app.sign_in.log_out(origin, &token).await?;
        answer.insert_header((SET_COOKIE, clear_cookie(sessions)?));
    }
    Ok(answer.finish())
}

/// A refusal that removes the cookie of a session that has ended.
fn refuse(
    req: &HttpRequest,
    sessions: Option<&BrowserSessions>,
    problem: Problem,
) -> Result<HttpResponse, Problem> {
    let is_dead = problem.status() == StatusCode::UNAUTHORIZED
        && crate::extract::key_of(req).is_none()
        && browser_session::token_of(req).is_some();
    if !is_dead {
        return Err(problem);
    }
    let mut answer = problem.error_response();
    answer
        .headers_mut()
        .append(SET_COOKIE, clear_cookie(sessions)?);
    Ok(answer)
}

fn clear_cookie(
    sessions: Option<&BrowserSessions>,
) -> Result<actix_web::http::header::HeaderValue, Problem> {
    let sessions = sessions.ok_or_else(Problem::not_found)?;
    Ok(sessions.clear_cookie())
}

/// Lists the caller's sessions, oldest first, all on one page.
#[utoipa::path(tag = "Sessions", responses((status = 200, body = PageDto<SessionDto>)))]
#[get("/api/v1/sessions")]
pub(crate) async fn list(
    app: Application,
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> Result<web::Json<PageDto<SessionDto>>, Problem> {
    let sessions = app.sign_in.sessions(&actor.user).await?;
    let items = sessions.into_iter();
    let items = items.map(|session| SessionDto::of(session, actor.session));
    Ok(web::Json(PageDto {
        items: items.collect(),
        next_page_id: None,
    }))
}

/// Ends one of the caller's sessions: at once in this process, within a second in others.
#[utoipa::path(tag = "Sessions", responses((status = 200, body = Success)))]
#[delete("/api/v1/sessions/{session_id}")]
pub(crate) async fn end(
    app: Application,
    ApiCall(actor, (origin, PathParam(id))): ApiCall<Actor, (AuditOrigin, PathParam<SessionId>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    app.sign_in.end(&origin, &actor.user, id).await?;
    Ok(web::Json(Success::DONE))
}

/// Changes the caller's password, and ends the caller's other sessions.
#[utoipa::path(tag = "Sessions", request_body = PasswordChangeDto, responses(
    (status = 200, body = Success),
    (status = 400, description = "The new password is too short or too long"),
    (status = 403, description = "The current password is wrong"),
    (status = 404, description = "Users of this service do not sign in"),
    (status = 409, description = "The caller has no password, or it was changed at the same time"),
))]
#[post("/api/v1/users/me/password")]
pub(crate) async fn change_password(
    req: HttpRequest,
    app: Application,
    ApiCall(actor, (origin, Body(input))): ApiCall<Actor, (AuditOrigin, Body<PasswordChangeDto>)>,
) -> Result<web::Json<Success>, Problem> {
    let origin = origin.with_status(StatusCode::OK);
    let passwords = (&input.current_password, &input.new_password);
    let network = ClientAddress::of(&req).address.map(client_network);
    app.sign_in
        .change_password(&origin, &actor, passwords, network)
        .await?;
    Ok(web::Json(Success::DONE))
}
