//! Propagation of traces from and to other programs. The composition root decides about format and exporter.

use std::collections::BTreeMap;

use domain::start_task::StartStatus;
use tracing::Span;

/// Headers of a trace (`traceparent`, `tracestate`); empty outside of a trace.
pub type TraceHeaders = Vec<(&'static str, String)>;

/// Connects spans of this process with those of other programs.
#[derive(Debug, Clone, Copy)]
pub struct TracePropagation {
    /// Makes a new span a part of the trace in these headers.
    pub adopt: fn(&Span, &[(&'static str, String)]),
    pub current: fn() -> TraceHeaders,
}

/// Names of the headers as they are stored.
const HEADER_NAMES: [&str; 2] = ["traceparent", "tracestate"];

/// The trace of the current request, to store with its start task.
pub(crate) fn current_context(traces: Option<TracePropagation>) -> BTreeMap<String, String> {
    let headers = traces.map(|it| (it.current)()).unwrap_or_default();
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    headers.into_iter().map(named).collect()
}

/// Makes the span a part of the stored trace.
pub(crate) fn continue_trace(
    traces: Option<TracePropagation>,
    context: &BTreeMap<String, String>,
    span: &Span,
) {
    let Some(traces) = traces else { return };
    let headers = HEADER_NAMES.iter().filter_map(|name| {
        let value = context.get(*name)?;
        Some((*name, value.clone()))
    });
    let headers: Vec<_> = headers.collect();
    if !headers.is_empty() {
        (traces.adopt)(span, &headers);
    }
}

/// The span of a start's current step. Steps are states, so no call lasts as long as one.
#[derive(Debug)]
pub(crate) struct StepSpan {
    status: StartStatus,
    _span: Span,
}

impl StepSpan {
    /// Begins a span in the current span, the start's.
    pub(crate) fn enter(status: StartStatus) -> Self {
        let span = if status.is_terminal() {
            Span::none()
        } else {
            tracing::debug_span!("start.step", step = %status)
        };
        Self {
            status,
            _span: span,
        }
    }

    /// Ends the span of the last step if the status changed.
    pub(crate) fn continue_with(&mut self, status: StartStatus) {
        if self.status != status {
            *self = Self::enter(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static ADOPTED: Mutex<Vec<(&str, String)>> = Mutex::new(Vec::new());

    #[test]
    fn a_stored_trace_continues() {
        let headers = || {
            let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            vec![
                ("traceparent", parent.to_owned()),
                ("tracestate", "a=b".to_owned()),
            ]
        };
        let traces = TracePropagation {
            adopt: |_, headers| ADOPTED.lock().unwrap().extend_from_slice(headers),
            current: headers,
        };
        let context = current_context(Some(traces));
        continue_trace(None, &context, &Span::none());
        continue_trace(Some(traces), &BTreeMap::new(), &Span::none());
        assert!(ADOPTED.lock().unwrap().is_empty());
        continue_trace(Some(traces), &context, &Span::none());
        assert_eq!(*ADOPTED.lock().unwrap(), headers());
        assert!(super::current_context(None).is_empty());
    }
}
