//! Forwards requests to agent servers that came in the body of another request. The web front end sends them this way,
//! because its session opens only the service's own routes.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};
use application::gateway::AgentRoute;
use domain::id::OwnerId;
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, select};
use gateway::{EnvelopedRequest, ForwardError, Gateway};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::page_restriction::restrict_page;
use super::path_owner::PathOwner;
use super::route_recheck::RouteRecheck;
use super::{file_paths, forward_problem, target_of};
use crate::audit::AuditContext;
use crate::extract::{Application, KEY_HEADER, KeyPurpose, key_attempts, state_of};
use crate::problem::Problem;

/// The only paths that an enveloped request may have: pages of agent servers lie elsewhere.
const ENVELOPE_PREFIX: &str = "/api/";

/// A request inside another one.
pub(crate) struct Envelope {
    pub(crate) host: String,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, SecretString)>,
    /// May be empty.
    pub(crate) body: Bytes,
    /// The longest time from here to the last byte of the response.
    pub(crate) timeout: Duration,
}

/// Forwards an enveloped request to the sandbox of the key in its headers, which must be `owner`'s.
pub(crate) async fn forward_envelope(
    req: &HttpRequest,
    app: Application,
    owner: &OwnerId,
    envelope: Envelope,
) -> Result<HttpResponse, Problem> {
    let deadline = Instant::now() + envelope.timeout;
    let state = state_of(req)?;
    if !state.addresses.is_agent_server_base(&envelope.host) {
        return Err(Problem::bad_request(
            "host must be the part of the conversation_url before /api/conversations",
        ));
    }
    let (path, query) = envelope.path_and_query()?;
    let place = PathOwner::of(path);
    let mut headers = envelope.headers()?;
    let route = route_of(req, &app, owner, &headers).await?;
    let asked = file_paths::target(&app, &route, path, query).await?;
    let recheck = RouteRecheck::Sandbox {
        key: route.at.key.clone(),
        sandbox: route.sandbox.clone(),
    };
    let gateway = req.app_data::<web::Data<Gateway>>();
    let gateway = gateway.ok_or_else(Problem::not_found)?;
    let request_id = AuditContext::request_id(req);
    let target = target_of(req, route, true, (asked, &request_id))?;
    headers.remove(&KEY_HEADER);
    let request = EnvelopedRequest {
        method: envelope.method,
        headers,
        body: envelope.body,
    };
    let end = until_refused_or(deadline, recheck.until_refused(app, state));
    let answer = timeout_at(deadline, gateway.forward_enveloped(request, &target, end)).await;
    let mut answer = match answer {
        Ok(Err(ForwardError::Ended)) if Instant::now() < deadline => Err(ForwardError::Ended),
        Ok(Err(ForwardError::Ended)) | Err(_) => Err(ForwardError::UpstreamTimedOut),
        Ok(answer) => answer,
    }
    .map_err(|failure| forward_problem(&failure))?;
    restrict_page(answer.headers_mut(), place);
    Ok(answer)
}

impl Envelope {
    /// The path, if agent servers answer it without a socket, and the query.
    fn path_and_query(&self) -> Result<(&str, &str), Problem> {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let is_forwarded = match PathOwner::of(path) {
            PathOwner::Service | PathOwner::Socket(_) => false,
            PathOwner::Shared | PathOwner::AgentServer | PathOwner::Conversation(_) => {
                path.starts_with(ENVELOPE_PREFIX)
            }
        };
        if is_forwarded {
            Ok((path, query))
        } else {
            Err(Problem::bad_request(
                "path must be one of the agent server's, such as /api/conversations/{id}/events",
            ))
        }
    }

    fn headers(&self) -> Result<HeaderMap, Problem> {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let header = HeaderName::try_from(name.as_str());
            let value = HeaderValue::try_from(value.expose_secret());
            let (Ok(header), Ok(value)) = (header, value) else {
                let name = name.escape_debug();
                let refusal = format!("headers: {name} is not a valid header");
                return Err(Problem::bad_request(refusal));
            };
            headers.append(header, value);
        }
        Ok(headers)
    }
}

/// The sandbox of the key in the envelope. A wrong key counts like one in a request's own headers, and a key of another
/// user's sandbox is a wrong key.
async fn route_of(
    req: &HttpRequest,
    app: &Application,
    owner: &OwnerId,
    headers: &HeaderMap,
) -> Result<AgentRoute, Problem> {
    let missing = || Problem::bad_request("headers must have the X-Session-API-Key of a sandbox");
    let key = headers.get(&KEY_HEADER).ok_or_else(missing)?;
    let key = key.to_str().map_err(|_| missing())?;
    key_attempts::check_key_attempts(req, [key].into_iter(), KeyPurpose::Call)?;
    match app.gateway.by_key(key).await? {
        Some(route) if route.owner == *owner => Ok(route),
        _ => {
            let key = SecretString::from(key);
            key_attempts::count_wrong_keys(req, [&key].into_iter(), KeyPurpose::Call);
            Err(Problem::missing(
                "None of your sandboxes has this X-Session-API-Key; read the conversation again for the present one",
            ))
        }
    }
}

/// Completes at the deadline, or when the caller loses access.
fn until_refused_or(
    deadline: Instant,
    refused: LocalBoxFuture<'static, ()>,
) -> LocalBoxFuture<'static, ()> {
    let end = async move {
        select(Box::pin(sleep_until(deadline)), refused).await;
    };
    end.boxed_local()
}
