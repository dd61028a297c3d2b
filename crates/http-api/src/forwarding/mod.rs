//! Forwards requests to the agent servers in sandboxes, on the service's own port.
//!
//! A layer before the routes. [`path_owner`] decides by path and caller; this module identifies callers by their keys; the
//! crate `gateway` forwards. See docs/reference/gateway.md.

mod envelope;
mod file_paths;
mod forwarding_headers;
mod page_restriction;
mod path_owner;
mod query;
mod route_recheck;

use std::net::{IpAddr, Ipv4Addr};

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use application::AppError;
use application::gateway::AgentRoute;
use domain::id::ConversationId;
use domain::user::scope::Scope;
use gateway::{ForwardError, ForwardTarget, Gateway};
use secrecy::{ExposeSecret, SecretString};

pub(crate) use self::envelope::{Envelope, forward_envelope};
pub(crate) use self::forwarding_headers::forwarding_headers;
use self::page_restriction::restrict_page;
use self::path_owner::{CallerClass, PathOwner, RouteDecision};
pub(crate) use self::query::without_keys;
use self::route_recheck::RouteRecheck;
use crate::access_recheck::AccessRecheck;
use crate::extract::{
    Actor, Application, ClientAddress, KEY_HEADER, MAX_KEY_BYTES, key_attempts, key_of,
    received_at, state_of, user_of,
};
use crate::middleware::open_mode::ForeignPage;
use crate::problem::Problem;
use crate::rate_limit::{self, KeyPurpose};
use crate::state::HttpState;
use crate::trace;

/// Whether a request may be for an agent server.
pub(crate) fn may_forward(req: &ServiceRequest) -> bool {
    PathOwner::of(req.uri().path()).is_forwardable() && is_forwarded_method(req.method())
}

/// The response of an agent server to a request that [`may_forward`]; `None` if it is for the service's own routes.
pub(crate) async fn forward(
    req: &mut ServiceRequest,
    request_id: &HeaderValue,
) -> Result<Option<HttpResponse>, Problem> {
    let place = PathOwner::of(req.uri().path());
    let (Some(app), Some(gateway), Ok(state)) = (
        req.app_data::<Application>().cloned(),
        req.app_data::<web::Data<Gateway>>().cloned(),
        state_of(req.request()).cloned(),
    ) else {
        return Ok(None);
    };
    let Some(found) = resolve(&app, place, req.request()).await? else {
        return Ok(None);
    };
    let payload = req.take_payload();
    let (agent_route, has_key, recheck) = (found.agent_route, found.has_key, found.recheck);
    let (path, query) = (req.uri().path(), req.uri().query().unwrap_or_default());
    let asked = file_paths::target(&app, &agent_route, path, query).await?;
    let end = recheck.until_refused(app, &state);
    let target = target_of(req.request(), agent_route, has_key, (asked, request_id))?;
    let answer = gateway.forward(req.request(), payload, &target, end);
    let answer = answer.await.map_err(|failure| forward_problem(&failure));
    let mut answer = answer?;
    restrict_page(answer.headers_mut(), place);
    Ok(Some(answer))
}

/// Agent servers use no other methods; bytes after a CONNECT would belong to it.
pub(crate) fn is_forwarded_method(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::PATCH
            | Method::DELETE
            | Method::OPTIONS
    )
}

fn target_of(
    req: &HttpRequest,
    agent_route: AgentRoute,
    has_key: bool,
    (path_and_query, request_id): (String, &HeaderValue),
) -> Result<ForwardTarget, Problem> {
    let mut headers = forwarding_headers(req);
    headers.push((HeaderName::from_static("x-request-id"), request_id.clone()));
    trace::propagate(req, &mut headers);
    if has_key {
        let key = HeaderValue::from_str(agent_route.at.key.expose_secret());
        let mut key =
            key.map_err(|_| Problem::internal("session key is not a valid header value"))?;
        key.set_sensitive(true);
        headers.push((KEY_HEADER.clone(), key));
    }
    Ok(ForwardTarget {
        sandbox: agent_route.sandbox.as_str().into(),
        owner: agent_route.owner.as_str().into(),
        unauthenticated: (!has_key).then(|| address_of(req)),
        base_url: agent_route.at.url,
        path_and_query,
        headers,
        cookies: false,
        prefix: String::new(),
    })
}

/// The address by which unauthenticated clients are counted: from trusted proxies or the connection.
fn address_of(req: &HttpRequest) -> IpAddr {
    let client = ClientAddress::of(req);
    client
        .address
        .map_or(Ipv4Addr::UNSPECIFIED.into(), rate_limit::client_network)
}

struct ForwardRoute {
    agent_route: AgentRoute,
    /// Whether the request gets the sandbox's key.
    has_key: bool,
    recheck: RouteRecheck,
}

/// Resolves the route of a request; `None` if it is for the service's own routes.
async fn resolve(
    app: &Application,
    place: PathOwner,
    req: &HttpRequest,
) -> Result<Option<ForwardRoute>, Problem> {
    let upgrades = gateway::is_websocket_upgrade(req);
    let (keys, of_headers) = keys_of(req);
    let texts = keys.iter().map(ExposeSecret::expose_secret);
    if !keys.is_empty()
        && let Err(problem) = key_attempts::check_key_attempts(req, texts, KeyPurpose::Call)
    {
        // The service's routes refuse by themselves, except those without a key: health.
        let is_ours = place == PathOwner::Shared;
        return if is_ours { Ok(None) } else { Err(problem) };
    }
    let by_key = route_by_key(app, req, &keys).await?;
    if place == PathOwner::Shared && by_key.is_none() {
        // The service's routes identify the caller themselves, but not all of them need a key.
        count_unknown_keys(req, &keys);
        return Ok(None);
    }
    // A page from a sandbox could leak its URL, and a user's key gives access to more than that sandbox. So a user's key in the
    // query counts only for sockets: they show no page, and browsers can send a key in no other way.
    let of_user = if upgrades {
        &keys[..]
    } else {
        &keys[..of_headers]
    };
    let is_foreign = req.extensions().contains::<ForeignPage>();
    let user = match by_key {
        Some(_) => None,
        // In open mode: only a sandbox's key opens anything to a page of another origin, perhaps in the first frame of a
        // socket.
        None if is_foreign => None,
        // A key that does not count here must not make the caller the local user of an open service.
        None if of_user.is_empty() && !keys.is_empty() => None,
        None => user_of_keys(req, of_user).await?,
    };
    let caller = match (&by_key, &user, keys.is_empty()) {
        (Some(_), _, _) => CallerClass::Sandbox,
        (None, Some(_), _) => CallerClass::User,
        (None, None, false) => CallerClass::UnknownKey,
        (None, None, true) => CallerClass::NoKey,
    };
    let decision = place.decision(caller, upgrades);
    let is_refused = match decision {
        RouteDecision::Refused => true,
        RouteDecision::ByConversation(_) => user.is_none(),
        _ => false,
    };
    if is_refused {
        if !keys.is_empty() {
            key_attempts::count_wrong_keys(req, keys.iter(), KeyPurpose::Call);
        }
        return if is_foreign {
            Ok(None)
        } else {
            Err(refusal(&keys))
        };
    }
    let state = state_of(req)?;
    if let RouteDecision::Unchecked(conversation) = decision {
        limit_keyless_sockets(req, state, conversation).await?;
    }
    let user = user.map(|actor| {
        let access = AccessRecheck::new(state.clone(), of_user.to_vec());
        (actor, access)
    });
    open_route(app, decision, by_key, user).await
}

/// The sandbox of the first key that is one.
async fn route_by_key(
    app: &Application,
    req: &HttpRequest,
    keys: &[SecretString],
) -> Result<Option<AgentRoute>, Problem> {
    for key in keys {
        if let Some(route) = app.gateway.by_key(key.expose_secret()).await? {
            key_attempts::accept_key(req, Some(key.expose_secret()), None)?;
            return Ok(Some(route));
        }
    }
    Ok(None)
}

/// Refuses a socket without a key if its address opens too many of them to this conversation.
async fn limit_keyless_sockets(
    req: &HttpRequest,
    state: &HttpState,
    conversation: ConversationId,
) -> Result<(), Problem> {
    let counted =
        state
            .rate
            .count_keyless_socket(address_of(req), conversation, received_at(req, state));
    let Err(held) = counted else { return Ok(()) };
    if let Some(held) = held {
        held.wait().await;
    }
    Err(rate_limit::too_many_requests(
        "Too many sockets without a key to this conversation. Send the sandbox's session_api_key in the query, or slow down.",
    ))
}

/// Counts keys that belong to no sandbox. A key that was valid before may be a user's: configured keys may have any form.
fn count_unknown_keys(req: &HttpRequest, keys: &[SecretString]) {
    let is_missed = |key: &&SecretString| {
        application::gateway::looks_like_sandbox_key(key.expose_secret())
            && !key_attempts::is_known_key(req, key)
    };
    let mut missed = keys.iter().filter(is_missed).peekable();
    if missed.peek().is_some() {
        key_attempts::count_wrong_keys(req, missed, KeyPurpose::Call);
    }
}

/// The route that a decision leads to; `None` for the service's own routes.
async fn open_route(
    app: &Application,
    decision: RouteDecision,
    by_key: Option<AgentRoute>,
    user: Option<(Actor, AccessRecheck)>,
) -> Result<Option<ForwardRoute>, Problem> {
    match (decision, user) {
        (RouteDecision::ByKey, _) => Ok(by_key.map(|agent_route| ForwardRoute {
            recheck: RouteRecheck::Sandbox {
                key: agent_route.at.key.clone(),
                sandbox: agent_route.sandbox.clone(),
            },
            agent_route,
            has_key: true,
        })),
        (RouteDecision::ByConversation(conversation), Some((actor, access))) => {
            let scope = actor.scope();
            let agent_route = app.gateway.by_conversation(&scope, conversation).await?;
            let recheck = RouteRecheck::User {
                actor,
                access,
                conversation,
                sandbox: agent_route.sandbox.clone(),
            };
            Ok(Some(ForwardRoute {
                agent_route,
                has_key: true,
                recheck,
            }))
        }
        (RouteDecision::Unchecked(conversation), _) => {
            let agent_route = unchecked(app, conversation).await?;
            let recheck = RouteRecheck::Unchecked {
                conversation,
                sandbox: agent_route.sandbox.clone(),
            };
            Ok(Some(ForwardRoute {
                agent_route,
                has_key: false,
                recheck,
            }))
        }
        (RouteDecision::Service, _) => Ok(None),
        (RouteDecision::ByConversation(_) | RouteDecision::Refused, _) => {
            Err(Problem::unauthorized())
        }
    }
}

/// The route for a caller without a key, who knows the id of a running conversation. The agent server then requires the key.
/// Callers cannot distinguish unknown, foreign and paused conversations.
async fn unchecked(app: &Application, id: ConversationId) -> Result<AgentRoute, Problem> {
    let found = app.gateway.by_conversation(&Scope::System, id).await;
    found.map_err(|error| match error {
        AppError::Refused { .. } => Problem::missing(
            "No conversation with this id is running. Send the key of its sandbox in the header X-Session-API-Key or the query \
             session_api_key for details.",
        ),
        error => Problem::from(error),
    })
}

fn refusal(keys: &[SecretString]) -> Problem {
    if !keys.is_empty() {
        return Problem::unauthorized();
    }
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "This is a path of the agent servers in sandboxes: send the sandbox's session_api_key in the header X-Session-API-Key \
         or the query session_api_key.",
    )
}

async fn user_of_keys(req: &HttpRequest, keys: &[SecretString]) -> Result<Option<Actor>, Problem> {
    if keys.is_empty() {
        return user_of(req, None).await;
    }
    for key in keys {
        if let Some(user) = user_of(req, Some(key.expose_secret())).await? {
            return Ok(Some(user));
        }
    }
    Ok(None)
}

/// The keys of a request in order of precedence (`X-Session-API-Key`, `Authorization: Bearer`, the query), and the number of
/// those from headers.
fn keys_of(req: &HttpRequest) -> (Vec<SecretString>, usize) {
    let (mut keys, mut of_headers) = (Vec::<SecretString>::new(), 0);
    let bearer = req.headers().get(AUTHORIZATION);
    let bearer = bearer.and_then(|value| value.to_str().ok()?.split_once(' '));
    let bearer = bearer
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| SecretString::from(token.trim()));
    let sent = [
        (key_of(req), true),
        (bearer, true),
        (query::key_in(req.query_string()), false),
    ];
    for (key, is_of_header) in sent {
        let Some(key) = key else { continue };
        let text = key.expose_secret();
        let is_known = keys.iter().any(|key| key.expose_secret() == text);
        if !is_known && !text.is_empty() && text.len() <= MAX_KEY_BYTES {
            keys.push(key);
            of_headers += usize::from(is_of_header);
        }
    }
    (keys, of_headers)
}

pub(crate) fn forward_problem(failure: &ForwardError) -> Problem {
    use std::error::Error as _;
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::BAD_GATEWAY);
    let problem = Problem::new(status, failure.to_string());
    match failure.source() {
        // Only the `Debug` form of hyper's errors names the part that failed.
        Some(cause) => problem.because(format!("{cause:?}")),
        None => problem,
    }
}
