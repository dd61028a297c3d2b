//! Sends visitors without a session to the login page.

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::{HttpRequest, HttpResponse};

use crate::extract::session_user;
use crate::problem::Problem;
use crate::state::state_of;

/// What a page of the service answers to a visitor without a session: a redirect to `/login`, which returns to the page
/// afterwards. `None` for visitors with a session, and where users do not sign in. Routes that serve documents call it.
pub(crate) async fn login_redirect(req: &HttpRequest) -> Result<Option<HttpResponse>, Problem> {
    let state = state_of(req)?;
    if state.browser_sessions.is_none() || session_user(req).await?.is_some() {
        return Ok(None);
    }
    let prefix = state.addresses.prefix();
    let wanted = req.uri().path_and_query().map_or("/", |it| it.as_str());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("returnTo", &format!("{prefix}{wanted}"));
    let location = format!("{prefix}/login?{}", query.finish());
    Ok(Some(
        HttpResponse::build(StatusCode::FOUND)
            .insert_header((LOCATION, location))
            .finish(),
    ))
}
