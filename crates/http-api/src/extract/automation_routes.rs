//! The routes of keys of the automations service.

use actix_web::HttpRequest;

use crate::problem::Problem;

/// What a key of the automations service opens, beside the paths of that service itself.
const AUTOMATION_ROUTES: [(&str, &str); 9] = [
    ("GET", "/api/v1/users/me"),
    ("GET", "/api/v1/sandboxes"),
    ("POST", "/api/v1/sandboxes"),
    ("DELETE", "/api/v1/sandboxes/{sandbox_id}"),
    ("POST", "/api/v1/sandboxes/{sandbox_id}/pause"),
    ("POST", "/api/v1/sandboxes/{sandbox_id}/resume"),
    ("GET", "/api/agent-profiles"),
    ("GET", "/api/agent-profiles/{name}"),
    ("POST", "/api/automation/{tail:.*}"),
];

/// Refuses a request that a run of an automation does not need: its agent can read the key.
pub(super) fn check_automation_route(req: &HttpRequest) -> Result<(), Problem> {
    let route = req.match_pattern();
    let is_open = AUTOMATION_ROUTES.iter().any(|(method, pattern)| {
        req.method().as_str() == *method && route.as_deref() == Some(*pattern)
    });
    is_open
        .then_some(())
        .ok_or_else(|| Problem::forbidden("This key is for runs of automations only"))
}
