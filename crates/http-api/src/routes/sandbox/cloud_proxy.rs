//! Requests to agent servers inside a request to the service. The name is that of the web front end, which sends these.

use actix_web::{HttpRequest, HttpResponse, post};

use crate::dto::sandbox::envelope::EnvelopeDto;
use crate::extract::{Actor, ApiCall, Application, Body};
use crate::forwarding;
use crate::problem::Problem;

/// Sends a request to the agent server of one of the caller's sandboxes, and answers with its response.
///
/// Nothing leaves the service: it looks the sandbox up by the `X-Session-API-Key` in `headers` and forwards the request to
/// it as if it had come on its own path. `Cookie`, `Authorization`, `Host`, forwarding headers and headers of one connection
/// in `headers` have no effect.
#[utoipa::path(
    tag = "Sandboxes",
    request_body = EnvelopeDto,
    responses(
        (status = 200, description = "Status, content type and body are the agent server's", body = serde_json::Value),
        (status = 400, description = "No path of agent servers, another host, or no key"),
        (status = 404, description = "The key is of none of the caller's sandboxes"),
        (status = 409, description = "The sandbox does not run"),
        (status = 502, description = "The agent server cannot be reached"),
        (status = 504, description = "The agent server did not answer in time"),
    )
)]
#[post("/api/cloud-proxy")]
pub(crate) async fn forward(
    req: HttpRequest,
    app: Application,
    ApiCall(actor, Body(envelope)): ApiCall<Actor, Body<EnvelopeDto>>,
) -> Result<HttpResponse, Problem> {
    forwarding::forward_envelope(&req, app, &actor.owner, envelope.into_envelope()).await
}
