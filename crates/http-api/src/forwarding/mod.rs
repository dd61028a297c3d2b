//! Requests for the agent servers inside sandboxes, on our own port.
//!
//! A layer before the routes: [`places`] says which paths may be meant for an agent server and what decides; here callers are
//! told by their keys, and the crate `gateway` does the forwarding. See docs/gateway.md.

mod client;
mod places;
mod query;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, UPGRADE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use application::AppError;
use application::gateway::Way;
use domain::id::ConversationId;
use domain::scope::Scope;
use gateway::{Failure, Gateway, Target};
use secrecy::{ExposeSecret, SecretString};

pub(crate) use self::client::forwarded;
use self::places::{Caller, Course, Place};
use crate::extract::{Actor, Application, key_of, user_of};
use crate::problem::Problem;

const KEY_HEADER: HeaderName = HeaderName::from_static("x-session-api-key");
/// Longer texts are no keys.
const LONGEST_KEY: usize = 512;

/// The answer of an agent server, or why there is none; `None` if the request is for our own routes.
pub(crate) async fn answer(
    req: &mut ServiceRequest,
    request_id: &HeaderValue,
) -> Option<Result<HttpResponse, Problem>> {
    let place = Place::of(req.uri().path());
    if !place.asks_for_caller() || !may_pass(req.method()) {
        return None;
    }
    let (Some(app), Some(gateway)) = (
        req.app_data::<Application>().cloned(),
        req.app_data::<web::Data<Gateway>>().cloned(),
    ) else {
        return None;
    };
    let way = match find(&app, place, req.request()).await {
        Ok(Some(way)) => way,
        Ok(None) => return None,
        Err(problem) => return Some(Err(problem)),
    };
    let path_and_query = query::target(req.uri().path(), req.query_string());
    let payload = req.take_payload();
    let answer = forward(
        &gateway,
        req.request(),
        payload,
        way,
        path_and_query,
        request_id,
    )
    .await;
    Some(answer)
}

/// Others are no methods of agent servers.
fn may_pass(method: &Method) -> bool {
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

async fn forward(
    gateway: &Gateway,
    req: &HttpRequest,
    payload: actix_web::dev::Payload,
    (way, has_key): (Way, bool),
    path_and_query: String,
    request_id: &HeaderValue,
) -> Result<HttpResponse, Problem> {
    let mut headers = client::forwarded(req);
    headers.push((HeaderName::from_static("x-request-id"), request_id.clone()));
    if has_key {
        let key = HeaderValue::from_str(way.at.key.expose_secret());
        let mut key = key.map_err(|_| Problem::internal("a session key is no header"))?;
        key.set_sensitive(true);
        headers.push((KEY_HEADER, key));
    }
    let target = Target {
        lane: way.sandbox.to_string(),
        base_url: way.at.url,
        path_and_query,
        headers,
        cookies: false,
        prefix: String::new(),
    };
    let answer = gateway.forward(req, payload, &target).await;
    let mut answer = answer.map_err(|failure| problem(&failure))?;
    // What a sandbox answers is not a page of ours: should a browser show it, then without the rights of this origin.
    answer
        .headers_mut()
        .append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    Ok(answer)
}

/// Where the request goes, and whether it gets the sandbox's key; `None`: to our own routes.
async fn find(
    app: &Application,
    place: Place,
    req: &HttpRequest,
) -> Result<Option<(Way, bool)>, Problem> {
    let keys = keys_of(req);
    let mut by_key = None;
    for key in &keys {
        by_key = app.gateway.by_key(key.expose_secret()).await?;
        if by_key.is_some() {
            break;
        }
    }
    if place == Place::OfBoth && by_key.is_none() {
        // Our routes find out by themselves whose key it is.
        return Ok(None);
    }
    let user = match by_key {
        Some(_) => None,
        None => user(req, &keys).await?,
    };
    let caller = match (&by_key, &user, keys.is_empty()) {
        (Some(_), _, _) => Caller::Sandbox,
        (None, Some(_), _) => Caller::User,
        (None, None, false) => Caller::Stranger,
        (None, None, true) => Caller::Silent,
    };
    let upgrades = req.headers().contains_key(UPGRADE);
    match (place.course(caller, upgrades), user) {
        (Course::ByKey, _) => Ok(by_key.map(|way| (way, true))),
        (Course::ByConversation(id), Some(user)) => {
            let way = app.gateway.by_conversation(&user.scope(), id).await?;
            Ok(Some((way, true)))
        }
        (Course::Unchecked(id), _) => Ok(Some((unchecked(app, id).await?, false))),
        (Course::Ours, _) => Ok(None),
        (Course::ByConversation(_) | Course::Refused, _) => Err(refusal(&keys)),
    }
}

/// Whoever knows the id of a conversation that runs gets as far as its agent server, which wants the key then. Others do not
/// learn whether it is unknown, somebody's, or paused.
async fn unchecked(app: &Application, id: ConversationId) -> Result<Way, Problem> {
    let found = app.gateway.by_conversation(&Scope::System, id).await;
    found.map_err(|error| match error {
        AppError::Refused { .. } => Problem::missing(
            "No conversation with this id is running. Send the key of its sandbox in the header X-Session-API-Key or the query \
             session_api_key to be told more.",
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

async fn user(req: &HttpRequest, keys: &[SecretString]) -> Result<Option<Actor>, Problem> {
    if keys.is_empty() {
        return user_of(req, None).await;
    }
    for key in keys {
        if let Some(user) = user_of(req, Some(key)).await? {
            return Ok(Some(user));
        }
    }
    Ok(None)
}

/// The keys of a request, in the order in which they count: our header, `Authorization: Bearer`, the query.
fn keys_of(req: &HttpRequest) -> Vec<SecretString> {
    let mut keys: Vec<SecretString> = Vec::new();
    let beside = req.headers().get(AUTHORIZATION);
    let beside = beside.and_then(|value| value.to_str().ok()?.split_once(' '));
    let beside = beside
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| SecretString::from(token.trim()));
    for key in [key_of(req), beside, query::key_in(req.query_string())] {
        let Some(key) = key else { continue };
        let text = key.expose_secret();
        let is_known = keys.iter().any(|it| it.expose_secret() == text);
        if !is_known && !text.is_empty() && text.len() <= LONGEST_KEY {
            keys.push(key);
        }
    }
    keys
}

/// What a client is told when the server behind has no answer for it.
pub(crate) fn problem(failure: &Failure) -> Problem {
    use std::error::Error as _;
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::BAD_GATEWAY);
    let problem = Problem::new(status, failure.to_string());
    match failure.source() {
        // Which of its parts fail, hyper says only in `Debug`.
        Some(cause) => problem.because(format!("{cause:?}")),
        None => problem,
    }
}
