//! Signing in at an identity provider: the way there and back, by redirects of the browser.
//!
//! Between the two, the browser keeps the login in a cookie of its own, sealed. Another browser, or another tab that began a
//! newer login, cannot complete it.

use actix_web::http::StatusCode;
use actix_web::http::header::{LOCATION, SET_COOKIE};
use actix_web::{HttpRequest, HttpResponse, get, web};
use application::single_sign_on::{CompletedLogin, LoginAnswer};
use domain::id::ProviderName;
use secrecy::SecretString;

use super::login_redirect::login_redirect;
use super::own_page::{login_client, open_session};
use super::sign_in::login_refusal;
use crate::browser_session::{self, safe_return_to};
use crate::extract::{Application, AuditOrigin, session_user, state_of};
use crate::problem::Problem;

#[derive(Debug, Default, serde::Deserialize)]
struct StartQuery {
    #[serde(rename = "returnTo", default)]
    return_to: String,
    /// `1`: the identity is linked to the user who is signed in.
    #[serde(default)]
    link: String,
}

/// What a provider sends back. Other parameters are ignored.
#[derive(Default, serde::Deserialize)]
struct AnswerQuery {
    #[serde(default)]
    state: String,
    code: Option<String>,
    iss: Option<String>,
}

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config.service(start).service(complete);
}

fn provider_of(path: &str) -> Result<ProviderName, Problem> {
    ProviderName::parse(path).map_err(|_| Problem::not_found())
}

#[get("/oauth/{provider}/login")]
async fn start(
    req: HttpRequest,
    app: Application,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let sessions = browser_session::sessions_of(&req)?;
    let provider = provider_of(&path)?;
    let query = web::Query::<StartQuery>::from_query(req.query_string());
    let query = query.map(web::Query::into_inner).unwrap_or_default();
    let mut link_for = None;
    if query.link == "1" {
        // A page of another origin could otherwise link an identity of an attacker to a visitor's account.
        browser_session::check_same_origin(&req)?;
        if let Some(login) = login_redirect(&req).await? {
            return Ok(login);
        }
        link_for = session_user(&req).await?;
    }
    let return_to = safe_return_to(&query.return_to);
    let client = login_client(&req);
    let started = app
        .single_sign_on
        .start(&provider, return_to, link_for.as_ref(), &client);
    match started.await {
        Ok(started) => Ok(HttpResponse::SeeOther()
            .insert_header((LOCATION, started.url.as_str()))
            .insert_header((SET_COOKIE, sessions.set_login_cookie(&started.sealed)?))
            .finish()),
        Err(error) => login_refusal(&req, &app, error, return_to, ""),
    }
}

#[get("/oauth/{provider}/callback")]
async fn complete(
    req: HttpRequest,
    app: Application,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let sessions = browser_session::sessions_of(&req)?;
    let provider = provider_of(&path)?;
    let query = web::Query::<AnswerQuery>::from_query(req.query_string());
    let query = query.map(web::Query::into_inner).unwrap_or_default();
    let answer = LoginAnswer {
        state: query.state,
        code: query.code.map(SecretString::from),
        issuer: query.iss,
    };
    let sealed = sessions.login_token(req.headers());
    let login = app
        .single_sign_on
        .resume(&provider, sealed.as_ref(), &answer);
    let login = match login {
        Ok(login) => login,
        // The cookie stays: it may belong to another login, which is still under way.
        Err(error) => return login_refusal(&req, &app, error, None, ""),
    };
    let return_to = login.return_to.as_deref().and_then(safe_return_to);
    let caller = if login.is_link() {
        session_user(&req).await?
    } else {
        None
    };
    let origin = AuditOrigin::of(&req).with_status(StatusCode::SEE_OTHER);
    let client = login_client(&req);
    let completed = app
        .single_sign_on
        .complete(origin, &login, answer, &client, caller.as_ref());
    let mut response = match completed.await {
        Ok(CompletedLogin::SignedIn(begun)) => open_session(&req, &begun, return_to)?,
        Ok(CompletedLogin::Linked) => {
            let home = format!("{}/", state_of(&req)?.addresses.prefix());
            HttpResponse::SeeOther()
                .insert_header((LOCATION, return_to.unwrap_or(&home)))
                .finish()
        }
        Err(error) => login_refusal(&req, &app, error, return_to, "")?,
    };
    let removed = sessions.clear_login_cookie();
    response.headers_mut().append(SET_COOKIE, removed);
    Ok(response)
}
