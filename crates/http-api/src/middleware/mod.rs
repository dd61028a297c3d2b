//! What happens to every request, whatever it asks for: one layer, [`edge`], that calls the pure parts in order.
//!
//! request id → span → preflight → foreign pages (open mode) → trailing slash → the routes, with panics caught →
//! cross-origin, cache and request-id headers on whatever came out.
//!
//! Knows headers and paths. Knows nothing of routes' inputs or of the application.

mod cors;
mod open;
mod request_id;
mod slash;
mod unread;

use std::any::Any;
use std::panic::AssertUnwindSafe;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, EXPIRES, HeaderMap, HeaderName, HeaderValue, PRAGMA};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, ResponseError};
use futures::FutureExt;
use tracing::Instrument;

use crate::extract::State;
use crate::problem::Problem;

pub(crate) use cors::Cors;
use unread::Unread;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What must be known of a request after the routes have consumed it.
struct Facts {
    id: HeaderValue,
    origin: Option<HeaderValue>,
    state: State,
}

impl Facts {
    fn decorate(&self, headers: &mut HeaderMap) {
        self.state.cors().decorate(self.origin.as_ref(), headers);
        // A stream says it in its own words.
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(
                CACHE_CONTROL,
                HeaderValue::from_static("no-cache, no-store, must-revalidate, max-age=0"),
            );
        }
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        headers.insert(EXPIRES, HeaderValue::from_static("0"));
        headers.insert(REQUEST_ID, self.id.clone());
    }
}

/// The layer around the whole application.
pub(crate) async fn edge(
    state: State,
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let id = request_id::of(req.headers().get(REQUEST_ID), state.ports().ids.as_ref());
    let span = tracing::info_span!(
        "http.request",
        request.id = %id.to_str().unwrap_or_default(),
        http.method = %req.method(),
        // The path only: a query may carry a key.
        http.path = %req.path(),
    );
    state.stats().touch(state.ports().clock.now(), req.path());
    let facts = Facts {
        id,
        origin: cors::origin_of(req.headers()).cloned(),
        state,
    };
    serve(facts, req, next).instrument(span).await
}

async fn serve(
    facts: Facts,
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let unread = Unread::of(&mut req);
    let began = facts.state.ports().clock.now();
    if let Some(early) = early_answer(&facts, &req) {
        let mut response = req.into_response(early);
        facts.decorate(response.headers_mut());
        return Ok(response.map_body(|_, body| Unread::kept_by(unread, body)));
    }
    let outcome = AssertUnwindSafe(next.call(req)).catch_unwind().await;
    let served = match outcome {
        Ok(Ok(response)) => {
            let mut response = response.map_into_boxed_body();
            facts.decorate(response.headers_mut());
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
    let ended = facts.state.ports().clock.now();
    let duration_ms = ended.since(began).as_millis();
    tracing::info!(http.status = status.as_u16(), duration_ms, "answered");
    served
}

/// The request itself is gone by now, so the answer travels as an error that already has its form.
fn refused(facts: &Facts, mut response: HttpResponse, unread: Option<Unread>) -> Error {
    facts.decorate(response.headers_mut());
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
    if facts.state.is_open() && open::refuses(req.headers(), cors, facts.state.public_url()) {
        return Some(Problem::forbidden("This page may not use an open service").error_response());
    }
    slash::redirect(req, facts.state.surface()?)
}
