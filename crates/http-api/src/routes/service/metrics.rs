//! Metrics for Prometheus. Public like the probes, unless a key or a metrics listener is configured. No series names a user,
//! an object or an address.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get};

use crate::extract::{Application, State, key_of};
use crate::metrics::{CONTENT_TYPE, MetricsAccess, page};
use crate::problem::Problem;
use crate::process_stats::ProcessSample;

/// Metrics of this process in Prometheus' text format. Requires the configured key, if there is one. With a metrics listener
/// and no key, only that listener serves them.
#[utoipa::path(tag = "Health", security((), ("ApiKey" = [])), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 404, description = "Metrics are served only by the metrics listener"),
))]
#[get("/metrics")]
pub(crate) async fn read(
    app: Application,
    state: State,
    req: HttpRequest,
) -> Result<HttpResponse, Problem> {
    match state.http_metrics.access(state.listener, || key_of(&req)) {
        MetricsAccess::Allowed => {}
        MetricsAccess::NeedsKey => return Err(Problem::unauthorized()),
        MetricsAccess::NotServed => return Err(Problem::not_found()),
    }
    let process = ProcessSample::take(state.stats.started());
    Ok(HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(page(&state, &app, &process)))
}
