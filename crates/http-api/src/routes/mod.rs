//! The routes, one file per resource. A handler extracts, calls one verb of the application and converts the answer.

mod docs;
mod health;
mod process_stats;

use actix_web::{HttpRequest, HttpResponse, web};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::extract::state_of;
use crate::problem::Problem;

pub(crate) use process_stats::ProcessStats;

/// Registers every route. What is registered here is documented; nothing else exists.
pub(crate) fn register(config: &mut ServiceConfig<'_>) {
    config
        .service(health::alive)
        .service(health::health)
        .service(health::ready)
        .service(health::server_info);
}

/// Registers what serves the documentation itself and is not part of it.
pub(crate) fn register_docs(config: &mut web::ServiceConfig) {
    config
        .service(docs::document)
        .service(docs::entry)
        .service(docs::page);
}

/// What no route takes: 405 with the methods that would have been, or 404.
pub(crate) async fn unmatched(req: HttpRequest) -> Result<HttpResponse, Problem> {
    let surface = state_of(&req)?.surface();
    match surface.and_then(|surface| surface.allowed(req.path())) {
        Some(methods) => Ok(HttpResponse::MethodNotAllowed()
            .insert_header(("Allow", methods))
            .json(serde_json::json!({"detail": "Method Not Allowed"}))),
        None => Err(Problem::not_found()),
    }
}
