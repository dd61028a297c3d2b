//! Traces of requests: joins the client's trace, completes the span, and passes the context on to agent servers.

use actix_web::HttpRequest;
use actix_web::body::MessageBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use tracing::Span;

use crate::state::State;

/// W3C Trace Context.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];
/// W3C allows 512 characters for a `tracestate`.
const MAX_TRACE_HEADER_BYTES: usize = 512;

/// Makes the span of a request part of the client's trace.
pub(crate) fn begin(state: &State, span: &Span, headers: &HeaderMap) {
    let Some(traces) = state.traces else { return };
    let named = TRACE_HEADERS.iter().filter_map(|name| {
        let value = headers.get(*name)?.to_str().ok()?;
        (value.len() <= MAX_TRACE_HEADER_BYTES).then(|| (*name, value.to_owned()))
    });
    let named: Vec<_> = named.collect();
    if !named.is_empty() {
        (traces.adopt)(span, &named);
    }
}

/// Records the response in the current span, which is the request's. Called after the last log line, which contains the
/// status already.
pub(crate) fn end<B: MessageBody>(
    state: &State,
    answer: Option<&ServiceResponse<B>>,
    status: StatusCode,
) {
    if state.traces.is_none() {
        return;
    }
    let span = Span::current();
    span.record("http.status", status.as_u16());
    let route = answer.and_then(|answer| state.http_metrics.requests().route_of(answer.request()));
    if let Some(route) = route {
        span.record("http.route", route);
    }
}

/// Adds headers for an agent server in place of the client's, so that its trace continues below the current span.
pub(crate) fn propagate(req: &HttpRequest, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    let Some(traces) = req.app_data::<State>().and_then(|state| state.traces) else {
        return;
    };
    for (name, value) in (traces.current)() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.push((HeaderName::from_static(name), value));
        }
    }
}
