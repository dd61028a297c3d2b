//! What happens to every request, whatever it asks for: one layer, [`edge`], that calls the pure parts in order.
//!
//! request id → span → preflight → foreign pages (open mode) → trailing slash → an agent server or the routes, with panics caught →
//! cross-origin, cache and request-id headers on whatever received_at out.
//!
//! Knows headers and paths. Knows nothing of routes' inputs or of the application.

mod beside;
mod cors;
mod open;
mod prefix;
mod request_id;
mod seat;
mod shown;
mod slash;
mod unread;
mod unsent;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ResponseHead, ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::{CACHE_CONTROL, EXPIRES, HOST, HeaderName, HeaderValue, PRAGMA};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, ResponseError};
use futures::FutureExt;
use tracing::Instrument;

use crate::audit::{self, AuditContext};
use crate::extract::{ClientAddress, State, state_of};
use crate::forwarding;
use crate::problem::Problem;
use crate::rate::Quota;
use crate::state::Listener;
use crate::trace;

pub(crate) use cors::Cors;
use seat::Seat;
use unread::Unread;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What must be known of a request after the routes have consumed it.
struct Facts {
    id: HeaderValue,
    origin: Option<HeaderValue>,
    /// What the client asked for, if a trusted proxy said it.
    host: Option<String>,
    /// Whether its connection is one too many.
    is_last: bool,
    state: State,
}

impl Facts {
    /// `is_forwarded`: a sandbox's agent server answered, and says itself what may be kept.
    fn decorate(&self, head: &mut ResponseHead, is_forwarded: bool) {
        if (self.is_last || self.state.is_draining()) && !head.upgrade() {
            // The client comes back on another connection, which a proxy makes to another service.
            head.set_connection_type(ConnectionType::Close);
        }
        let headers = head.headers_mut();
        self.state.cors().decorate(self.origin.as_ref(), headers);
        headers.insert(REQUEST_ID, self.id.clone());
        if is_forwarded {
            return;
        }
        // A stream says it in its own words.
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(
                CACHE_CONTROL,
                HeaderValue::from_static("no-cache, no-store, must-revalidate, max-age=0"),
            );
        }
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        headers.insert(EXPIRES, HeaderValue::from_static("0"));
    }
}

/// The layer around the whole application.
pub(crate) async fn edge(
    state: State,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    prefix::strip(&mut req, state.addresses());
    let id = request_id::of(req.headers().get(REQUEST_ID), state.ports().ids.as_ref());
    let client = ClientAddress::note(&req, state.trusted_proxies());
    let span = tracing::info_span!(
        "http.request",
        request.id = %id.to_str().unwrap_or_default(),
        http.method = %req.method(),
        // The path only, and without a signature: a query may carry a key.
        http.path = %shown::shown(req.path()),
        client.address = client.address.map(tracing::field::display),
        http.route = tracing::field::Empty,
        http.status = tracing::field::Empty,
    );
    trace::begin(&state, &span, req.headers());
    if client.is_claimed && state.listener() == Listener::Public && state.is_first_claim() {
        span.in_scope(warn_of_claim);
    }
    let received_at = state.ports().clock.now();
    AuditContext::begin(&req, id.clone(), received_at);
    state.stats().touch(received_at, req.path());
    let seat = Seat::of(&req);
    let facts = Facts {
        id,
        origin: cors::origin_of(req.headers()).cloned(),
        host: client.host,
        is_last: seat.is_last,
        state,
    };
    let served = serve(facts, &seat, req, next).instrument(span).await;
    served.map(|answer| seat.kept_by(answer))
}

/// When a client may ask again for what there was no room for.
const NO_ROOM_RETRY: Duration = Duration::from_secs(30);

fn warn_of_claim() {
    tracing::warn!(
        "a request received_at with forwarding headers from a machine that is not trusted, so the client's address and scheme are \
         unknown; if it is your reverse proxy, name it in WORKSPACE_HTTP__TRUSTED_PROXIES (said once)"
    );
}

async fn serve(
    facts: Facts,
    seat: &Seat,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let unread = Unread::of(&mut req);
    let arrived = Instant::now();
    let requests = facts.state.measuring().requests();
    let _in_flight = requests.in_flight.enter();
    let early = seat.refusal().or_else(|| early_answer(&facts, &req));
    if let Some(early) = early {
        let mut response = req.into_response(early);
        facts.decorate(response.response_mut().head_mut(), false);
        requests.note_unmatched(response.status(), arrived.elapsed());
        return Ok(response.map_body(|_, body| Unread::kept_by(unread, body)));
    }
    let outcome = AssertUnwindSafe(forward_or_serve(&facts.id, req, next));
    let outcome = outcome.catch_unwind().await;
    let took = arrived.elapsed();
    let served = match outcome {
        Ok(Ok((mut response, is_forwarded))) => {
            if !is_forwarded {
                response = unsent::counted(&facts.state, response);
            }
            if let Some(quota) = Quota::of(response.request()) {
                quota.tell(response.headers_mut());
            }
            facts.decorate(response.response_mut().head_mut(), is_forwarded);
            let status = response.status();
            if is_forwarded {
                requests.note_forwarded(status, took);
            } else {
                requests.note(response.request(), status, took);
                audit::note(&response);
            }
            Ok(response.map_body(|_, body| Unread::kept_by(unread, body)))
        }
        Ok(Err(error)) => Err(refused(&facts, error.error_response(), unread)),
        Err(panic) => {
            let problem = Problem::internal(panic_text(panic.as_ref()));
            Err(refused(&facts, problem.error_response(), unread))
        }
    };
    let status = served.as_ref().map_or_else(
        |error| error.as_response_error().status_code(),
        ServiceResponse::status,
    );
    if served.is_err() {
        requests.note_unmatched(status, took);
    }
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(http.status = status.as_u16(), duration_ms, "answered");
    trace::end(&facts.state, served.as_ref().ok(), status);
    served
}

/// The answer, and whether it is an agent server's.
async fn forward_or_serve(
    id: &HeaderValue,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<(ServiceResponse<BoxBody>, bool), Error> {
    // Only where there may be one, and in a box: every layer above would carry and move it for requests of ours, too.
    let forwarded = if forwarding::may_concern(&req) {
        Box::pin(forwarding::answer(&mut req, id)).await
    } else {
        None
    };
    match forwarded {
        Some(Ok(answer)) => Ok((req.into_response(answer), true)),
        Some(Err(problem)) => {
            let mut answer = problem.error_response();
            if let Some(quota) = Quota::of(&req) {
                quota.tell(answer.headers_mut());
            }
            Err(InternalError::from_response("not forwarded", answer).into())
        }
        None => {
            if let Some(problem) = no_room(&req) {
                let answer = problem.error_response();
                return Err(InternalError::from_response("no room", answer).into());
            }
            Ok((next.call(req).await?.map_into_boxed_body(), false))
        }
    }
}

/// Why a request that would store something new is refused while a disk is nearly full. What frees room is not, nor what
/// stops work.
fn no_room(req: &ServiceRequest) -> Option<Problem> {
    let stores = matches!(*req.method(), Method::POST | Method::PUT | Method::PATCH);
    if !stores || req.path().ends_with("/pause") {
        return None;
    }
    let state = state_of(req.request()).ok()?;
    let reason = state.ports().readiness.refuses_writes()?;
    Some(Problem::new(StatusCode::INSUFFICIENT_STORAGE, reason).retry_after(NO_ROOM_RETRY))
}

/// The request itself is gone by now, so the answer travels as an error that already has its form.
fn refused(facts: &Facts, mut response: HttpResponse, unread: Option<Unread>) -> Error {
    facts.decorate(response.head_mut(), false);
    let response = response.map_body(|_, body| Unread::kept_by(unread, body));
    InternalError::from_response("request failed", response).into()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic in a handler: {}", text.unwrap_or("no text"))
}

/// Answers that need no route.
fn early_answer(facts: &Facts, req: &ServiceRequest) -> Option<HttpResponse> {
    let cors = facts.state.cors();
    if req.method() == Method::OPTIONS
        && let Some(preflight) = cors.preflight(req.headers())
    {
        return Some(preflight);
    }
    let addresses = facts.state.addresses();
    // Not only what a proxy says: one that writes no `X-Forwarded-Host` hands on what a page made of it.
    let host = req.headers().get(HOST).and_then(|host| host.to_str().ok());
    if addresses.is_elsewhere([facts.host.as_deref(), host], req.path()) {
        return Some(Problem::not_found().error_response());
    }
    // Behind the operators' listener there is nothing that a page could do, and scrapers use names that only they know.
    let is_open = facts.state.is_open() && facts.state.listener() != Listener::Metrics;
    if is_open && open::refuses(req.headers(), cors, addresses) {
        return Some(Problem::forbidden("This page may not use an open service").error_response());
    }
    slash::redirect(req, facts.state.surface()?, addresses.prefix())
}
