//! Numbers for Prometheus. Open to everybody like the other probes, unless a key is configured or they have an address of
//! their own; no number names a user, an object or an address.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get};

use crate::process_stats::ProcessSample;
use crate::extract::{Application, State, key_of};
use crate::metrics::{CONTENT_TYPE, MetricsAccess, page};
use crate::problem::{Detail, Problem};

/// Metrics of this process in Prometheus' text format. Where the operator has set a key, it is needed; where they are read on
/// another address and there is no key, they are not here.
#[utoipa::path(
    tag = "Health",
    security((), ("ApiKey" = [])),
    responses(
        (status = 200, description = "The numbers", body = String, content_type = "text/plain"),
        (status = 404, description = "They are read on another address", body = Detail),
    )
)]
#[get("/metrics")]
pub(crate) async fn read(
    app: Application,
    state: State,
    req: HttpRequest,
) -> Result<HttpResponse, Problem> {
    match state.http_metrics().access(state.listener(), || key_of(&req)) {
        MetricsAccess::Allowed => {}
        MetricsAccess::NeedsKey => return Err(Problem::unauthorized()),
        MetricsAccess::NotServed => return Err(Problem::not_found()),
    }
    let process = ProcessSample::take(state.stats().started());
    Ok(HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(page(&state, &app, &process)))
}
