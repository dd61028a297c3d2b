//! Numbers for Prometheus. Open to everybody like the other probes, unless a key is configured; no number names a user, an
//! object or an address.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get};

use super::process_stats::Process;
use crate::extract::{Application, State, key_of};
use crate::metrics::{CONTENT_TYPE, page};
use crate::problem::Problem;

/// Metrics of this process in Prometheus' text format. Where the operator has set a key, it is needed.
#[utoipa::path(
    tag = "Health",
    security((), ("ApiKey" = [])),
    responses(
        (status = 200, description = "The numbers", body = String, content_type = "text/plain"),
    )
)]
#[get("/metrics")]
pub(super) async fn read(
    app: Application,
    state: State,
    req: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let key = key_of(&req);
    if !state.measuring().may_read(key.as_ref()) {
        return Err(Problem::unauthorized());
    }
    let process = Process::look(state.stats().started());
    Ok(HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(page(&state, &app, &process)))
}
