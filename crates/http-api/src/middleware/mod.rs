//! The layer around every request: [`edge`] calls these modules in order.
//!
//! request id → span → preflight → foreign pages (open mode) → trailing slash → an agent server or the routes, with panics
//! caught → CORS, cache and request-id headers on every response.
//!
//! Knows headers and paths. Knows nothing of routes' inputs or of the application.

mod body;
mod connection_slot;
pub(crate) mod cors;
pub(crate) mod open_mode;
mod path_redaction;
mod payload_guard;
mod request_head;
mod request_id;
mod trailing_slash;
mod unsent_body;
mod url_prefix;

pub use open_mode::CONTAINER_HOST_NAMES;
pub(crate) use open_mode::is_service_host;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ResponseHead, ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::{
    CACHE_CONTROL, EXPIRES, HOST, HeaderName, HeaderValue, PRAGMA, VARY,
};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpResponse, ResponseError};
use futures::FutureExt;
use tracing::Instrument;

use crate::audit::{self, AuditContext};
use crate::browser_session;
use crate::extract::ClientAddress;
use crate::forwarding;
use crate::problem::Problem;
use crate::rate_limit::RateLimitStatus;
use crate::state::{Listener, State, state_of};
use crate::trace;

use connection_slot::ConnectionSlot;
use open_mode::ForeignPage;
use payload_guard::PayloadGuard;

/// The cache directives of files whose name contains a hash of their content.
pub(crate) const CACHED_FOREVER: HeaderValue =
    HeaderValue::from_static("public, max-age=31536000, immutable");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the layer needs of a request after the routes have consumed it.
struct RequestContext {
    id: HeaderValue,
    origin: Option<HeaderValue>,
    /// The host that the client requested, if a trusted proxy forwarded it.
    host: Option<String>,
    /// Whether its connection is over the limit.
    is_surplus: bool,
    /// Whether the request has a session cookie.
    has_session: bool,
    state: State,
}

impl RequestContext {
    /// Adds the headers of every response. `is_forwarded`: an agent server answered, and its cache headers stay.
    fn decorate(&self, head: &mut ResponseHead, is_forwarded: bool) {
        if (self.is_surplus || self.state.is_draining()) && !head.upgrade() {
            // The client returns on another connection, which a proxy makes to another replica.
            head.set_connection_type(ConnectionType::Close);
        }
        if !is_forwarded
            && self.state.listener == Listener::Automations
            && head.status == StatusCode::SERVICE_UNAVAILABLE
        {
            // The automations service repeats requests after this status only, and fails a run after others.
            head.status = StatusCode::TOO_MANY_REQUESTS;
        }
        let headers = head.headers_mut();
        self.state.cors.decorate(self.origin.as_ref(), headers);
        headers.insert(REQUEST_ID, self.id.clone());
        if is_forwarded {
            return;
        }
        // Streams and files set their own.
        let own = headers.get(CACHE_CONTROL);
        if own == Some(&CACHED_FOREVER) {
            return;
        }
        let is_own = own.is_some();
        if self.has_session {
            headers.append(VARY, HeaderValue::from_static("Cookie"));
        }
        if !is_own {
            headers.insert(
                CACHE_CONTROL,
                HeaderValue::from_static("no-cache, no-store, must-revalidate, max-age=0"),
            );
        }
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        headers.insert(EXPIRES, HeaderValue::from_static("0"));
    }
}

pub(crate) async fn edge(
    state: State,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    request_head::copy_from_buffer(&mut req);
    url_prefix::strip(&mut req, &state.addresses);
    let id = request_id::of(req.headers().get(REQUEST_ID), state.ports.ids.as_ref());
    let client = ClientAddress::resolve(&req, state.trusted_proxies());
    let span = tracing::info_span!(
        "http.request",
        request.id = %id.to_str().unwrap_or_default(),
        http.method = %req.method(),
        // Only the path, and without a signature: a query may contain a key.
        http.path = %path_redaction::redacted(req.path()),
        client.address = client.address.map(tracing::field::display),
        http.route = tracing::field::Empty,
        http.status = tracing::field::Empty,
    );
    trace::begin(&state, &span, req.headers());
    if client.has_untrusted_headers
        && state.listener == Listener::Public
        && state.is_first_proxy_warning()
    {
        span.in_scope(warn_of_untrusted_proxy);
    }
    let received_at = state.ports.clock.now();
    AuditContext::begin(&req, id.clone(), received_at);
    state.stats.touch(received_at, req.path());
    let connection_slot = ConnectionSlot::of(&req);
    let context = RequestContext {
        id,
        origin: cors::origin_of(req.headers()).cloned(),
        host: client.host,
        is_surplus: connection_slot.is_surplus,
        has_session: browser_session::token_of(req.request()).is_some(),
        state,
    };
    let served = serve(context, &connection_slot, req, next)
        .instrument(span)
        .await;
    served.map(|answer| connection_slot.attach_to(answer))
}

/// `Retry-After` while the disk is nearly full.
const STORAGE_FULL_RETRY_AFTER: Duration = Duration::from_secs(30);

fn warn_of_untrusted_proxy() {
    tracing::warn!(
        "a request has forwarding headers from a machine that is not trusted, so the client's address and scheme are \
         unknown; if it is your reverse proxy, add it to WORKSPACE_HTTP__TRUSTED_PROXIES (logged once)"
    );
}

async fn serve(
    context: RequestContext,
    connection_slot: &ConnectionSlot,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let payload_guard = PayloadGuard::of(&mut req);
    let arrived = Instant::now();
    let requests = context.state.http_metrics.requests();
    let _in_flight = requests.in_flight.enter();
    let early = connection_slot
        .refusal()
        .or_else(|| early_response(&context, &req));
    if let Some(early) = early {
        let mut response = req.into_response(early);
        context.decorate(response.response_mut().head_mut(), false);
        requests.record_unmatched(response.status(), arrived.elapsed());
        return Ok(response.map_body(|_, body| PayloadGuard::attach_to(payload_guard, body)));
    }
    let outcome = AssertUnwindSafe(forward_or_serve(&context.id, req, next));
    let outcome = outcome.catch_unwind().await;
    let took = arrived.elapsed();
    let served = match outcome {
        Ok(Ok((mut response, is_forwarded))) => {
            if !is_forwarded {
                response = unsent_body::account(&context.state, response);
            }
            if let Some(limit_status) = RateLimitStatus::of(response.request()) {
                limit_status.write_headers(response.headers_mut());
            }
            context.decorate(response.response_mut().head_mut(), is_forwarded);
            let status = response.status();
            if is_forwarded {
                requests.record_forwarded(status, took);
            } else {
                requests.record(response.request(), status, took);
                audit::record(&response);
            }
            Ok(response.map_body(|_, body| PayloadGuard::attach_to(payload_guard, body)))
        }
        Ok(Err(error)) => Err(into_error(&context, error.error_response(), payload_guard)),
        Err(panic) => {
            let problem = Problem::internal(panic_text(panic.as_ref()));
            Err(into_error(
                &context,
                problem.error_response(),
                payload_guard,
            ))
        }
    };
    let status = served.as_ref().map_or_else(
        |error| error.as_response_error().status_code(),
        ServiceResponse::status,
    );
    if served.is_err() {
        requests.record_unmatched(status, took);
    }
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(http.status = status.as_u16(), duration_ms, "answered");
    trace::end(&context.state, served.as_ref().ok(), status);
    served
}

/// The response, and whether it comes from an agent server.
async fn forward_or_serve(
    id: &HeaderValue,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<(ServiceResponse<BoxBody>, bool), Error> {
    // Only for paths that may be forwarded, and boxed: otherwise every layer above would carry and move this future for all
    // requests.
    let forwarded = if forwarding::may_forward(&req) {
        Box::pin(forwarding::forward(&mut req, id)).await
    } else {
        Ok(None)
    };
    match forwarded {
        Ok(Some(answer)) => Ok((req.into_response(answer), true)),
        Err(problem) => {
            let mut answer = problem.error_response();
            if let Some(limit_status) = RateLimitStatus::of(&req) {
                limit_status.write_headers(answer.headers_mut());
            }
            Err(InternalError::from_response("not forwarded", answer).into())
        }
        Ok(None) if req.extensions().contains::<ForeignPage>() => {
            if let Ok(state) = state_of(req.request()) {
                state.refusal_log.warn(req.headers());
            }
            let answer = open_mode::refusal().error_response();
            Err(InternalError::from_response("a foreign page", answer).into())
        }
        Ok(None) => {
            if let Some(problem) = storage_refusal(&req) {
                let answer = problem.error_response();
                return Err(InternalError::from_response("no room", answer).into());
            }
            Ok((next.call(req).await?.map_into_boxed_body(), false))
        }
    }
}

/// Paths by which people sign in and out, to free space for example.
const SIGN_IN_PATHS: [&str; 7] = [
    "/login",
    "/invite",
    "/logout",
    "/password",
    "/password/forgot",
    "/api/authenticate",
    "/api/logout",
];

/// Calls of sandboxes that the service makes elsewhere store nothing here.
const CALLS_ELSEWHERE: [&str; 2] = ["/llm/", "/git/"];

/// Refuses a request that would store something new while a disk is nearly full. Requests that free space or stop work
/// pass.
fn storage_refusal(req: &ServiceRequest) -> Option<Problem> {
    let stores = matches!(*req.method(), Method::POST | Method::PUT | Method::PATCH);
    let path = req.path();
    let is_allowed = path.ends_with("/pause")
        || CALLS_ELSEWHERE.iter().any(|calls| path.starts_with(calls))
        || SIGN_IN_PATHS.contains(&path);
    if !stores || is_allowed {
        return None;
    }
    let state = state_of(req.request()).ok()?;
    let reason = state.ports.readiness.refuses_writes()?;
    Some(
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, reason)
            .retry_after(STORAGE_FULL_RETRY_AFTER),
    )
}

/// The request is consumed by now, so the response travels as an error that already has its form.
fn into_error(
    context: &RequestContext,
    mut response: HttpResponse,
    payload_guard: Option<PayloadGuard>,
) -> Error {
    context.decorate(response.head_mut(), false);
    let response = response.map_body(|_, body| PayloadGuard::attach_to(payload_guard, body));
    InternalError::from_response("request failed", response).into()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic in a handler: {}", text.unwrap_or("no text"))
}

/// Responses that need no route.
fn early_response(context: &RequestContext, req: &ServiceRequest) -> Option<HttpResponse> {
    let cors = &context.state.cors;
    if req.method() == Method::OPTIONS
        && let Some(preflight) = cors.preflight(req.headers())
    {
        return Some(preflight);
    }
    let addresses = &context.state.addresses;
    // Not only the host that a proxy forwards: a proxy that writes no `X-Forwarded-Host` passes on the client's.
    let host = req.headers().get(HOST).and_then(|host| host.to_str().ok());
    if addresses.is_elsewhere([context.host.as_deref(), host], req.path()) {
        return Some(Problem::not_found().error_response());
    }
    // The other listeners have no routes that a page could abuse, and their clients use host names that only they know.
    let has_pages = matches!(
        context.state.listener,
        Listener::Public | Listener::Callback
    );
    let is_open = context.state.is_open && has_pages;
    if is_open && open_mode::is_refused(req.headers(), cors, addresses) {
        if !forwarding::may_forward(req) {
            context.state.refusal_log.warn(req.headers());
            return Some(open_mode::refusal().error_response());
        }
        req.extensions_mut().insert(ForeignPage);
    }
    trailing_slash::redirect(req, context.state.surface()?, addresses.prefix())
}
