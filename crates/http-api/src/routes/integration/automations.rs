//! The automations service: users' requests to it, and its requests for keys of users.
//!
//! It is an unmodified package whose API lies below `/api/automation`, so none of its paths is documented here
//! (`docs/explanation/automations.md`). It never sees a user's own key: requests carry a key of the service's own, which says
//! who the user is. Requests of runs carry such a key already.

use std::time::Duration;

use actix_web::body::{BoxBody, to_bytes_limited};
use actix_web::dev::Payload;
use actix_web::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, route, web};
use domain::error::{Classify as _, ErrorClass};
use domain::id::OrganizationId;
use domain::user::identity::KeyHash;
use futures::FutureExt as _;
use gateway::ForwardTarget;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::audit::AuditContext;
use crate::automations::{AutomationsGateway, AutomationsStatus};
use crate::dto::legacy::front_end::AutomationHealthDto;
use crate::extract::{
    Actor, Application, Caller as _, KeyPurpose, bearer_of, bearer_text, key_attempts, state_of,
};
use crate::forwarding::{forward_problem, forwarding_headers};
use crate::problem::Problem;
use crate::state::{HttpState, Listener};

const PREFIX: &str = "/api/automation";
/// How long a request of a run waits for a restart of the automations service. Many scripts report their end only once.
const RESTART_WAIT: Duration = Duration::from_secs(30);
/// The automations service asks for a key once, for 30 seconds, and fails the run without one.
const KEY_RETRY_PERIOD: Duration = Duration::from_secs(15);
const KEY_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// A start of the installed automations service takes about this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The paths whose responses name addresses for webhooks.
const WEBHOOKS: &str = "/v1/webhooks";
const MAX_WEBHOOKS_BYTES: usize = 1024 * 1024;
const NO_AUTOMATIONS: &str =
    "This service has no automations: set WORKSPACE_AUTOMATIONS__ENABLED=auto";
/// The slots of the gateway for requests without a key are shared by all senders.
const SENDERS: &str = "senders";

/// How a path of the automations service is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathAccess {
    /// Needs no key of this service: public, or the automations service checks a signature itself.
    Open,
    /// For a run of an automation, by its key.
    Run,
    /// What runs keep for the next ones: for a run by a token of the automations service, and for users.
    Values,
    /// For users.
    User,
    /// Not served: it would run programs beside this service, or shows pages that need the internet.
    Closed,
}

impl PathAccess {
    /// `path`: without the prefix. A path that may mean another one is closed.
    fn of(method: &Method, path: &str) -> Self {
        if path.contains(['%', '\\', ';']) || path.contains("//") || path.contains("..") {
            return Self::Closed;
        }
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method, words.as_slice()) {
            (&Method::GET, ["sdk-version"] | ["v1", "events", _, "requested-types"])
            | (&Method::POST, ["v1", "events", _, _]) => Self::Open,
            (&Method::POST, ["v1", "runs", _, "phase" | "complete"]) => Self::Run,
            (_, ["v1", "kv", ..]) => Self::Values,
            (_, ["v1", "git-sync" | "telemetry", ..]) => Self::Closed,
            (_, ["v1", ..]) => Self::User,
            _ => Self::Closed,
        }
    }
}

/// Forwards a request to the automations service.
#[route(
    "/api/automation/{tail:.*}",
    method = "GET",
    method = "HEAD",
    method = "POST",
    method = "PUT",
    method = "PATCH",
    method = "DELETE"
)]
pub(crate) async fn forward(
    req: HttpRequest,
    payload: web::Payload,
    app: Application,
) -> Result<HttpResponse, Problem> {
    let state = state_of(&req)?;
    let path = req.path().strip_prefix(PREFIX).unwrap_or_default();
    let access = match PathAccess::of(req.method(), path) {
        PathAccess::Values if bearer_text(&req).is_some_and(is_token) => PathAccess::Values,
        // Runs have no more business here, and the sandbox of a run may be any user's.
        PathAccess::User | PathAccess::Values if state.listener != Listener::Public => {
            PathAccess::Closed
        }
        PathAccess::Values => PathAccess::User,
        access => access,
    };
    let mut ended_run = None;
    let (key, owner) = match access {
        PathAccess::Closed => return Err(Problem::not_found()),
        PathAccess::Open => (None, SENDERS.to_owned()),
        PathAccess::Values => (bearer_of(&req), SENDERS.to_owned()),
        PathAccess::Run => {
            let actor = Actor::identify(&req).await?;
            if !actor.is_automation {
                return Err(Problem::forbidden(
                    "Only a run of an automation may do this",
                ));
            }
            wait_for_restart(state).await;
            ended_run = actor.key.filter(|_| path.ends_with("/complete"));
            (bearer_of(&req), actor.owner.to_string())
        }
        PathAccess::User => {
            let actor = Actor::identify(&req).await?;
            if actor.is_automation {
                return Err(Problem::forbidden(
                    "This key is for runs of automations only",
                ));
            }
            let key = app.automation_keys.for_request(&actor).await?;
            (Some(key), actor.owner.to_string())
        }
    };
    // Everybody can send the other requests.
    let is_wanted = matches!(access, PathAccess::User | PathAccess::Run);
    let proof = match access {
        PathAccess::Open if *req.method() == Method::POST => Some(req.path().into()),
        PathAccess::Values => key.clone(),
        _ => None,
    };
    let target = target_of(&req, state, (key, &owner), is_wanted)?;
    let body = payload.into_inner();
    let answer = match &proof {
        Some(proof) => send_with_proof(&req, body, &target, (access, proof)).await?,
        None => send(&req, body, &target).await?,
    };
    if let (Some(run), Some(site)) = (ended_run, &state.automations)
        && answer.status().is_success()
    {
        // Where the queue is full, the sandbox is found by its age.
        let _ = site.run_ends.try_send(run);
    }
    if path.starts_with(WEBHOOKS) {
        return with_public_urls(answer, state).await;
    }
    Ok(answer)
}

/// The automations service knows only the URL by which sandboxes reach this service. Senders of webhooks need the public one.
async fn with_public_urls(
    answer: HttpResponse,
    state: &HttpState,
) -> Result<HttpResponse, Problem> {
    let Some(site) = &state.automations else {
        return Ok(answer);
    };
    let (head, body) = answer.into_parts();
    let body = to_bytes_limited(body, MAX_WEBHOOKS_BYTES).await;
    let body = body.ok().and_then(Result::ok);
    let body = body.ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_GATEWAY,
            "The list of webhooks is too long or broke off",
        )
    })?;
    let of = |base: &str| format!("\"{base}{PREFIX}/v1/events/");
    let text = String::from_utf8_lossy(&body);
    let text = text.replace(&of(&site.internal_url), &of(state.addresses.public()));
    Ok(head.set_body(BoxBody::new(text)))
}

async fn wait_for_restart(state: &HttpState) {
    if let Some(site) = &state.automations {
        let mut status = site.status.clone();
        let running = status.wait_for(|status| matches!(status, AutomationsStatus::Running(_)));
        // Without one the response is the same as for users.
        let _ = timeout(RESTART_WAIT, running).await;
    }
}

/// The target, if the automations service answers.
fn target_of(
    req: &HttpRequest,
    state: &HttpState,
    (key, owner): (Option<SecretString>, &str),
    is_wanted: bool,
) -> Result<ForwardTarget, Problem> {
    let site = state
        .automations
        .as_ref()
        .ok_or_else(|| Problem::missing(NO_AUTOMATIONS))?;
    let base_url = match &*site.status.borrow() {
        AutomationsStatus::Running(url) => url.clone(),
        AutomationsStatus::Unavailable(reason) => {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason.clone());
            if is_wanted {
                site.wanted.notify_one();
            }
            return Err(problem.retry_after(RETRY_AFTER));
        }
    };
    let mut headers = forwarding_headers(req);
    headers.push((
        HeaderName::from_static("x-request-id"),
        AuditContext::request_id(req),
    ));
    if let Some(key) = key {
        let value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()));
        let mut value = value.map_err(|_| Problem::unauthorized())?;
        value.set_sensitive(true);
        headers.push((AUTHORIZATION, value));
    }
    Ok(ForwardTarget {
        sandbox: site.name.clone(),
        owner: owner.into(),
        unauthenticated: None,
        base_url,
        path_and_query: req
            .uri()
            .path_and_query()
            .map_or_else(|| req.path().to_owned(), ToString::to_string),
        headers,
        cookies: false,
        prefix: String::new(),
    })
}

async fn send(
    req: &HttpRequest,
    payload: Payload,
    target: &ForwardTarget,
) -> Result<HttpResponse, Problem> {
    let gateway = req.app_data::<web::Data<AutomationsGateway>>();
    let gateway = gateway.ok_or_else(Problem::not_found)?;
    let end = futures::future::pending().boxed_local();
    let answer = gateway.0.forward(req, payload, target, end).await;
    answer.map_err(|failure| forward_problem(&failure))
}

/// Sends a request whose proof, a signature or a token, the automations service checks itself. A wrong one counts like a wrong
/// key of its sender.
async fn send_with_proof(
    req: &HttpRequest,
    payload: Payload,
    target: &ForwardTarget,
    (access, proof): (PathAccess, &SecretString),
) -> Result<HttpResponse, Problem> {
    let text = proof.expose_secret();
    key_attempts::check_key_attempts(req, std::iter::once(text), KeyPurpose::Call)?;
    let answer = send(req, payload, target).await?;
    match (access, answer.status()) {
        (_, StatusCode::UNAUTHORIZED) | (PathAccess::Open, StatusCode::NOT_FOUND) => {
            key_attempts::count_wrong_keys(req, std::iter::once(proof), KeyPurpose::Call);
        }
        // The proof of a signature is its path, which is no secret.
        (PathAccess::Values, status) if status.is_success() => {
            key_attempts::accept_key(req, Some(text), None)?;
        }
        _ => {}
    }
    Ok(answer)
}

/// Whether this is a token of the automations service (a JWT), and no key of this one.
fn is_token(bearer: &str) -> bool {
    bearer.matches('.').count() == 2
}

/// Says to a user whether there are automations, so that front ends ask for them only then. The first question starts them.
pub(crate) fn health(req: &HttpRequest) -> Result<HttpResponse, Problem> {
    let health = match &state_of(req)?.automations {
        None => AutomationHealthDto::unavailable(NO_AUTOMATIONS),
        Some(site) => match &*site.status.borrow() {
            AutomationsStatus::Running(_) => AutomationHealthDto::available(),
            AutomationsStatus::Unavailable(reason) => {
                site.wanted.notify_one();
                AutomationHealthDto::unavailable(reason)
            }
        },
    };
    Ok(HttpResponse::Ok().json(health))
}

/// Makes a key for a run of a user in an organization. The automations service alone reaches this route.
#[actix_web::post("/api/service/users/{user_id}/orgs/{organization_id}/api-keys")]
pub(crate) async fn issue_key(
    req: HttpRequest,
    app: Application,
    ids: web::Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let state = state_of(&req)?;
    let site = state.automations.as_ref().ok_or_else(Problem::not_found)?;
    let sent = req.headers().get("x-service-api-key");
    let sent = sent.and_then(|key| key.to_str().ok()).unwrap_or_default();
    // The comparison of hashes reveals nothing about the key.
    if KeyHash::of(sent) != KeyHash::of(site.service_key.expose_secret()) {
        return Err(Problem::unauthorized());
    }
    let id = |text: &str| {
        text.parse::<OrganizationId>()
            .map_err(|_| Problem::not_found())
    };
    let (user, organization) = (id(&ids.0)?, id(&ids.1)?);
    let last_try = Instant::now() + KEY_RETRY_PERIOD;
    let key = loop {
        match app.automation_keys.for_run(user, organization).await {
            Err(error) if error.class() == ErrorClass::Unavailable && Instant::now() < last_try => {
                sleep(KEY_RETRY_INTERVAL).await;
            }
            made => break made?,
        }
    };
    Ok(HttpResponse::Ok().json(json!({"key": key.expose_secret()})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_open_only_as_far_as_they_protect_themselves() {
        for (method, path, expected) in [
            (Method::GET, "/ready", PathAccess::Closed),
            (Method::GET, "/sdk-version", PathAccess::Open),
            (Method::HEAD, "/sdk-version", PathAccess::Closed),
            (Method::POST, "/v1/events/o/github", PathAccess::Open),
            (
                Method::GET,
                "/v1/events/github/requested-types",
                PathAccess::Open,
            ),
            (Method::GET, "/v1/events/o/github", PathAccess::User),
            (Method::POST, "/v1/events/o/github/x", PathAccess::User),
            (Method::POST, "/v1/runs/r/complete", PathAccess::Run),
            (Method::POST, "/v1/runs/r/phase", PathAccess::Run),
            (Method::POST, "/v1/runs/r/cancel", PathAccess::User),
            (Method::GET, "/v1", PathAccess::User),
            (Method::GET, "/v1/", PathAccess::User),
            (Method::POST, "/v1/preset/prompt", PathAccess::User),
            (Method::GET, "/v1/kv", PathAccess::Values),
            (Method::PUT, "/v1/kv/counter", PathAccess::Values),
            (Method::PUT, "/v1/git-sync/config", PathAccess::Closed),
            (Method::PUT, "/v1/%67it-sync/config", PathAccess::Closed),
            (Method::PUT, "/v1//git-sync/config", PathAccess::Closed),
            (Method::PUT, "/v1/x/../git-sync/config", PathAccess::Closed),
            (Method::POST, "/v1/telemetry/consent", PathAccess::Closed),
            (Method::GET, "/docs", PathAccess::Closed),
            (Method::GET, "/openapi.json", PathAccess::Closed),
            (Method::GET, "/server_info", PathAccess::Closed),
            (Method::GET, "/", PathAccess::Closed),
        ] {
            assert_eq!(PathAccess::of(&method, path), expected, "{method} {path}");
        }
    }
}
