//! The `OpenAPI` document and the page to browse it, which loads nothing from outside.

use std::sync::{Arc, LazyLock};

use actix_web::http::header::LOCATION;
use actix_web::{HttpResponse, get, web};
use utoipa_swagger_ui::Config;

use crate::extract::State;
use crate::problem::Problem;

/// The document. Serialised once per process.
#[get("/openapi.json")]
pub(super) async fn document(state: State) -> Result<HttpResponse, Problem> {
    let surface = state
        .surface()
        .ok_or_else(|| Problem::internal("no document"))?;
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .body(surface.document()))
}

/// The page refers to its files relative to `/docs/`.
#[get("/docs")]
pub(super) async fn entry(state: State) -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((LOCATION, format!("{}/docs/", state.addresses().prefix())))
        .finish()
}

static CONFIG: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::from("../openapi.json")));

/// The files of the page, from the binary. It finds the document relative to itself, under whatever path it is.
#[get("/docs/{file:.*}")]
pub(super) async fn page(file: web::Path<String>) -> Result<HttpResponse, Problem> {
    let found = utoipa_swagger_ui::serve(&file, Arc::clone(&CONFIG))
        .map_err(|error| Problem::internal(&error))?;
    let file = found.ok_or_else(Problem::not_found)?;
    Ok(HttpResponse::Ok()
        .content_type(file.content_type)
        .body(file.bytes.into_owned()))
}
