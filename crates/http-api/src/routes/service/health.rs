//! Liveness and readiness of the process. Public; no response names an internal address.

use actix_web::http::StatusCode;
use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpResponse, get, web};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::extract::State;
use crate::problem::Problem;
use crate::process_stats::Resources;
use crate::readiness::ReadinessCheck;

/// The check that fails while the process drains.
const DRAINING: &str = "draining";

/// The response of `/alive`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alive {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// The process runs.
#[utoipa::path(tag = "Health", security(()), responses((status = 200, body = Alive)))]
#[get("/alive")]
pub(crate) async fn alive() -> web::Json<Alive> {
    web::Json(Alive { status: "ok" })
}

/// The process runs (for probes that expect `"OK"`).
#[utoipa::path(tag = "Health", security(()), responses(
    (status = 200, body = String, content_type = "application/json", example = json!("OK")),
))]
#[get("/health")]
pub(crate) async fn health() -> web::Json<&'static str> {
    web::Json("OK")
}

/// The checks that fail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotReady {
    /// Names of the failed checks, separated by commas.
    detail: String,
    /// Every checked part: `ok`, or what is wrong.
    checks: std::collections::BTreeMap<String, String>,
}

/// Whether the store and the sandbox backend worked at most a second ago, and the service is not about to stop.
#[utoipa::path(tag = "Health", security(()), responses(
    (status = 200, body = String, content_type = "application/json", example = json!("OK")),
    (status = 503, body = NotReady),
))]
#[get("/ready")]
pub(crate) async fn ready(state: State) -> Result<HttpResponse, Problem> {
    let mut checks = state.checks().await.to_vec();
    // Not cached: load balancers must choose another replica immediately.
    if state.is_draining() {
        let draining_text = "the service is about to stop: send requests to another one";
        let draining = ReadinessCheck {
            name: DRAINING,
            failure: Some(draining_text.into()),
        };
        checks.insert(0, draining);
    }
    let failing: Vec<&str> = checks
        .iter()
        .filter(|check| check.failure.is_some())
        .map(|check| check.name)
        .collect();
    if failing.is_empty() {
        return Ok(HttpResponse::Ok().json("OK"));
    }
    let detail = format!("Not ready: {}", failing.join(", "));
    let all: Map<String, Value> = checks
        .iter()
        .map(|check| {
            (
                check.name.into(),
                check.failure.as_deref().unwrap_or("ok").into(),
            )
        })
        .collect();
    let body = json!({"detail": detail, "checks": all});
    if failing == [DRAINING] {
        // An expected state, requested often: not logged.
        let mut answer = HttpResponse::ServiceUnavailable();
        return Ok(answer.insert_header((RETRY_AFTER, "1")).json(body));
    }
    let cause = body["checks"].to_string();
    Err(Problem::with_body(StatusCode::SERVICE_UNAVAILABLE, body).because(cause))
}

/// The response of `/server_info`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerInfo)]
pub(crate) struct ServerInfoResponse {
    /// Seconds since the start.
    uptime: f64,
    /// Seconds since the last request that was not a probe.
    idle_time: f64,
    /// How sandboxes are isolated from this machine and from each other: `container`, `confined` (processes behind walls) or
    /// `none`.
    #[schema(example = "confined")]
    sandbox_isolation: &'static str,
    /// What sandboxes reach: `open`, `allow_list` (listed hosts, through the service) or `none`.
    #[schema(example = "open")]
    egress_policy: &'static str,
    resources: Resources,
}

/// Uptime and resource usage of the process.
#[utoipa::path(tag = "Health", security(()), responses((status = 200, body = ServerInfoResponse)))]
#[get("/server_info")]
pub(crate) async fn server_info(state: State) -> web::Json<ServerInfoResponse> {
    let now = state.ports.clock.now();
    let process = &state.stats;
    let (uptime, idle_time) = (
        process.uptime(now).as_secs_f64(),
        process.idle(now).as_secs_f64(),
    );
    web::Json(ServerInfoResponse {
        uptime,
        idle_time,
        sandbox_isolation: state.sandbox_isolation,
        egress_policy: state.egress_policy,
        resources: process.resources(now),
    })
}
