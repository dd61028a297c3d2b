//! Routes that the web front end of the 1.20 line requests from a hosted service before it works with it.

use actix_web::{HttpRequest, HttpResponse, get, post, web};

use crate::audit::Unaudited;
use crate::dto::legacy::front_end::{AutomationHealthDto, CurrentKeyDto};
use crate::extract::{Actor, ApiCall, DiscardedBody};
use crate::problem::Problem;
use crate::routes::integration::automations;

/// Loads the key of the request. Front ends check their connection with it.
#[utoipa::path(tag = "Users", responses((status = 200, body = CurrentKeyDto)))]
#[get("/api/keys/current")]
pub(crate) async fn current_key(
    ApiCall(actor, ()): ApiCall<Actor, ()>,
) -> web::Json<CurrentKeyDto> {
    web::Json(CurrentKeyDto::from(&actor.user))
}

/// Accepts events about the use of a front end, and stores nothing.
///
/// The web application sends one after each load, whether or not telemetry is on.
#[utoipa::path(
    tag = "Users",
    request_body = Option<serde_json::Value>,
    responses((status = 204, description = "Nothing was stored"))
)]
#[post("/api/analytics/events")]
pub(crate) async fn analytics_events(
    ApiCall(_actor, (Unaudited, DiscardedBody)): ApiCall<Actor, (Unaudited, DiscardedBody)>,
) -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// Says whether there are automations, so that front ends ask for them only then.
#[utoipa::path(tag = "Config", responses((status = 200, body = AutomationHealthDto)))]
#[get("/api/automation/health")]
pub(crate) async fn automation_health(
    req: HttpRequest,
    ApiCall(_actor, ()): ApiCall<Actor, ()>,
) -> Result<HttpResponse, Problem> {
    automations::health(&req)
}
