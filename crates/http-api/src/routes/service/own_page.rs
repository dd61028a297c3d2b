//! What the pages for signing in share: their caller, and their answers.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE, USER_AGENT};
use actix_web::{HttpRequest, HttpResponse};
use application::AppError;
use application::sign_in::{LoginClient, NewSession};
use domain::error::{Classify as _, ErrorClass};
use web_console::SIGN_IN_SECURITY_POLICY;

use crate::browser_session;
use crate::extract::{Caller, ClientAddress, KeyPurpose, received_at, state_of};
use crate::page_security;
use crate::problem::Problem;
use crate::rate_limit::client_network;

/// A browser that shows a page of this service.
pub(crate) struct OwnPage;

impl Caller for OwnPage {
    const KEY_PURPOSE: Option<KeyPurpose> = None;

    /// Not only with a cookie: a page of another origin could otherwise sign a visitor in under another account.
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        browser_session::check_same_origin(req)?;
        Ok(Self)
    }
}

/// Sends the browser on, with the cookie of its new session.
pub(super) fn open_session(
    req: &HttpRequest,
    NewSession { token, session }: &NewSession,
    return_to: Option<&str>,
) -> Result<HttpResponse, Problem> {
    let state = state_of(req)?;
    let now = received_at(req, state);
    let cookie = browser_session::sessions_of(req)?.set_cookie(token, now, session.expires_at)?;
    let start = format!("{}/", state.addresses.prefix());
    Ok(HttpResponse::SeeOther()
        .insert_header((LOCATION, return_to.unwrap_or(&start)))
        .insert_header((SET_COOKIE, cookie))
        .finish())
}

/// Shows the form again, with the reason.
pub(super) fn refusal(
    error: AppError,
    page: impl FnOnce(&str) -> String,
) -> Result<HttpResponse, Problem> {
    let message = error.public().into_owned();
    let status = match error.class() {
        ErrorClass::Invalid => StatusCode::BAD_REQUEST,
        ErrorClass::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorClass::Forbidden => StatusCode::FORBIDDEN,
        ErrorClass::Conflict => StatusCode::CONFLICT,
        ErrorClass::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorClass::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => return Err(error.into()),
    };
    Ok(html(status, page(&message)))
}

pub(super) fn login_client(req: &HttpRequest) -> LoginClient {
    let address = ClientAddress::of(req).address;
    let agent = req.headers().get(USER_AGENT);
    LoginClient {
        network: address.map(client_network),
        address,
        user_agent: agent.and_then(|value| value.to_str().map(str::to_owned).ok()),
    }
}

pub(super) fn html(status: StatusCode, page: String) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    page_security::add(&mut answer, SIGN_IN_SECURITY_POLICY);
    // With `no-referrer`, browsers name `null` as the origin of the form.
    answer.insert_header((REFERRER_POLICY, HeaderValue::from_static("same-origin")));
    answer.content_type("text/html; charset=utf-8").body(page)
}
