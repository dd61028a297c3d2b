//! Traces across processes: the headers of W3C Trace Context (<https://www.w3.org/TR/trace-context/>).

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

struct Headers<'a>(&'a [(&'static str, String)]);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let header = self.0.iter().find(|(name, _)| *name == key);
        header.map(|(_, value)| value.as_str())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

/// Makes a new span part of the trace that these headers name. Missing or invalid headers have no effect.
pub fn adopt(span: &Span, headers: &[(&'static str, String)]) {
    let context = TraceContextPropagator::new().extract(&Headers(headers));
    if context.span().span_context().is_valid() {
        // Fails for a span without a subscriber, which is fine.
        let _ = span.set_parent(context);
    }
}

/// The headers that propagate the trace of the current span. Empty without a trace.
pub fn current() -> Vec<(&'static str, String)> {
    let context = Span::current().context();
    let span = context.span();
    let ids = span.span_context();
    if !ids.is_valid() {
        return Vec::new();
    }
    let flags = ids.trace_flags().to_u8() & 1;
    let parent = format!("00-{}-{}-{flags:02x}", ids.trace_id(), ids.span_id());
    let state = ids.trace_state().header();
    let mut headers = vec![(PARENT, parent)];
    if !state.is_empty() {
        headers.push((STATE, state));
    }
    headers
}
