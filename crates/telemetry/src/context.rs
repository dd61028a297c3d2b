//! Traces across processes: the headers of W3C Trace Context (<https://www.w3.org/TR/trace-context/>).

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes a new span part of the trace that these headers name. Missing or invalid headers have no effect.
pub fn adopt(span: &Span, headers: &[(&'static str, String)]) {
    let headers = headers.iter();
    let headers: HashMap<String, String> = headers
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let context = TraceContextPropagator::new().extract(&headers);
    if context.span().span_context().is_valid() {
        // Fails for a span without a subscriber, which is fine.
        let _ = span.set_parent(context);
    }
}

/// The headers that propagate the trace of the current span. Empty without a trace.
pub fn current() -> Vec<(&'static str, String)> {
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    let present = |name| Some((name, headers.remove(name).filter(|text| !text.is_empty())?));
    ["traceparent", "tracestate"]
        .into_iter()
        .filter_map(present)
        .collect()
}
