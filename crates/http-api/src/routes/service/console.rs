//! The web console: its files, from the binary (`crates/web-console`). The console only uses the public API.

use actix_web::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, LOCATION};
use actix_web::{HttpRequest, HttpResponse, route, web};

use crate::page_security;
use crate::problem::Problem;

/// Redirects to `/console/`, which the page's files are relative to. The location is relative, too, for proxies with a path.
#[route("/console", method = "GET", method = "HEAD")]
pub(crate) async fn entry() -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((LOCATION, "console/"))
        .finish()
}

/// A file of the console. Browsers cache and revalidate it. For HEAD, the server sends the head of the same response.
#[route("/console/{file:.*}", method = "GET", method = "HEAD")]
pub(crate) async fn file(
    req: HttpRequest,
    name: web::Path<String>,
) -> Result<HttpResponse, Problem> {
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
