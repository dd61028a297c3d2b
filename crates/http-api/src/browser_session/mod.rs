//! Sessions of people who signed in: their cookie, and which requests may use it.
//!
//! A browser adds the cookie to requests of any page. So a request that may change something counts only if the browser
//! says that a page of this origin sent it. The cookie opens the service's own routes, never those of sandboxes.

pub(crate) mod cookies;
mod return_to;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::ORIGIN;
use secrecy::SecretString;

use crate::problem::Problem;
use crate::state::state_of;

pub(crate) use self::return_to::safe_return_to;
pub(crate) use cookies::BrowserSessions;

/// The token in the session cookie of a request to a service whose users sign in.
pub(crate) fn token_of(req: &HttpRequest) -> Option<SecretString> {
    let sessions = state_of(req).ok()?.browser_sessions.as_ref()?;
    sessions.token(req.headers())
}

/// Like [`check_same_origin`], for requests that may change something, and for those whose answer a page of another origin may
/// read: with these, browsers send `Origin`.
pub(crate) fn check_sender(req: &HttpRequest) -> Result<(), Problem> {
    let is_safe = matches!(*req.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe && !req.headers().contains_key(ORIGIN) {
        return Ok(());
    }
    check_same_origin(req)
}

/// Refuses a request that a page of another origin may have sent. 404 where users do not sign in.
pub(crate) fn check_same_origin(req: &HttpRequest) -> Result<(), Problem> {
    let sessions = sessions_of(req)?;
    if sessions.is_same_origin(req.headers()) {
        return Ok(());
    }
    Err(Problem::forbidden(
        "Requests with a session cookie must come from a page of this service: the browser sends Sec-Fetch-Site or Origin. \
         Programs send an API key instead",
    ))
}

/// The sessions of this service; 404 where users do not sign in.
pub(crate) fn sessions_of(req: &HttpRequest) -> Result<&BrowserSessions, Problem> {
    let sessions = state_of(req)?.browser_sessions.as_ref();
    sessions.ok_or_else(Problem::not_found)
}
