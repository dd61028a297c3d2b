//! The `OpenAPI` document and a page to browse it, which loads nothing from other hosts.

use std::sync::{Arc, LazyLock};

use actix_web::http::header::{AcceptEncoding, CONTENT_ENCODING, ContentEncoding, LOCATION};
use actix_web::{HttpResponse, get, web};
use utoipa_swagger_ui::Config;

use super::gzip;
use crate::extract::State;
use crate::openapi::RouteSurface;
use crate::page_security;
use crate::problem::Problem;

/// Permits what Swagger UI needs. It sets styles in attributes, and draws its icons from `data:` URLs.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

#[get("/openapi.json")]
pub(crate) async fn document(
    state: State,
    accepted: Option<web::Header<AcceptEncoding>>,
) -> Result<HttpResponse, Problem> {
    let document = state
        .surface()
        .and_then(RouteSurface::document)
        .ok_or_else(|| Problem::internal("this listener has no OpenAPI document"))?;
    let is_packed = accepted.is_some_and(|value| gzip::is_accepted(&value));
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/json");
    if is_packed {
        answer.insert_header((CONTENT_ENCODING, ContentEncoding::Gzip));
    }
    Ok(answer.body(document.text(is_packed)))
}

/// Redirects to `/docs/`, which the page's files are relative to.
#[get("/docs")]
pub(crate) async fn entry(state: State) -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((LOCATION, format!("{}/docs/", state.addresses.prefix())))
        .finish()
}

static CONFIG: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::from("../openapi.json")));

/// The files of the page, compressed in the binary. The page finds the document relative to itself, under any path.
#[get("/docs/{file:.*}")]
pub(crate) async fn page(
    file: web::Path<String>,
    accepted: Option<web::Header<AcceptEncoding>>,
) -> Result<HttpResponse, Problem> {
    let found = utoipa_swagger_ui::serve(&file, Arc::clone(&CONFIG))
        .map_err(|error| Problem::internal(&error))?;
    let file = found.ok_or_else(Problem::not_found)?;
    let mut answer = HttpResponse::Ok();
    answer.content_type(file.content_type);
    page_security::add(&mut answer, PAGE_POLICY);
    if !file.gzpipped {
        return Ok(answer.body(file.bytes.into_owned()));
    }
    if accepted.is_some_and(|value| gzip::is_accepted(&value)) {
        answer.insert_header((CONTENT_ENCODING, ContentEncoding::Gzip));
        return Ok(answer.body(file.bytes.into_owned()));
    }
    Ok(answer.body(gzip::unpacked(&file.bytes).await?))
}
