//! The web console and the settings pages: their files, from the binary (`crates/web-console`). They only use the public API.

use actix_web::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, LOCATION};
use actix_web::{HttpRequest, HttpResponse, route, web};
use web_console::{ConsolePage, PageSignIn};

use super::login_redirect::login_redirect;
use crate::extract::state_of;
use crate::page_security;
use crate::problem::Problem;
use crate::state::HttpState;

pub(crate) fn register(config: &mut web::ServiceConfig) {
    config
        .service(entry)
        .service(file)
        .service(settings)
        .service(skills);
}

/// Redirects to `/console/`, which the page's files are relative to. The location is relative, too, for proxies with a path.
#[route("/console", method = "GET", method = "HEAD")]
async fn entry() -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((LOCATION, "console/"))
        .finish()
}

/// The page, or a file of it. Browsers cache and revalidate files. For HEAD, the server sends the head of the same response.
#[route("/console/{file:.*}", method = "GET", method = "HEAD")]
async fn file(req: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    if name.is_empty() {
        // Visitors without a session get the page, too: only its script knows the view, which is in the fragment, and sends
        // them to the login page with it.
        return Ok(document(ConsolePage::Console, state_of(&req)?));
    }
    let file = web_console::find(&name).ok_or_else(Problem::not_found)?;
    let known = req.headers().get(IF_NONE_MATCH);
    let is_known = known
        .and_then(|known| known.to_str().ok())
        .is_some_and(|known| file.matches_etag(known));
    let mut answer = if is_known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    answer
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header((ETAG, file.etag.as_str()));
    page_security::add(&mut answer, web_console::CONTENT_SECURITY_POLICY);
    Ok(if is_known {
        answer.finish()
    } else {
        answer.content_type(file.content_type).body(file.content)
    })
}

/// The settings of the caller. The web application links to this path; those below it are its own.
#[route("/settings", method = "GET", method = "HEAD")]
async fn settings(req: HttpRequest) -> Result<HttpResponse, Problem> {
    signed_in_document(&req, ConsolePage::Settings).await
}

/// The skills page of the settings.
#[route("/settings/skills", method = "GET", method = "HEAD")]
async fn skills(req: HttpRequest) -> Result<HttpResponse, Problem> {
    signed_in_document(&req, ConsolePage::Skills).await
}

async fn signed_in_document(req: &HttpRequest, page: ConsolePage) -> Result<HttpResponse, Problem> {
    if let Some(login) = login_redirect(req).await? {
        return Ok(login);
    }
    Ok(document(page, state_of(req)?))
}

fn document(page: ConsolePage, state: &HttpState) -> HttpResponse {
    let sign_in = if state.is_open {
        PageSignIn::Open
    } else if state.browser_sessions.is_some() {
        PageSignIn::Session
    } else {
        PageSignIn::Key
    };
    let mut answer = HttpResponse::Ok();
    page_security::add(&mut answer, web_console::CONTENT_SECURITY_POLICY);
    // The page depends on the settings of the service.
    answer
        .insert_header((CACHE_CONTROL, "no-cache"))
        .content_type("text/html; charset=utf-8");
    answer.body(page.document(sign_in, state.web_app.is_some()))
}
