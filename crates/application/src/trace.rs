//! Traces that other programs began, or go on with. What they are, and where they go, is the composition root's.

use std::collections::BTreeMap;
use std::sync::Mutex;

use domain::id::StartTaskId;
use domain::start_task::StartStatus;
use tracing::Span;

/// Traces that are kept for starts that nobody has claimed yet.
const MOST: usize = 1024;

/// Headers that name a trace (`traceparent`, `tracestate`); none outside of one.
pub type TraceHeaders = Vec<(&'static str, String)>;

/// How the present span is tied to what other programs did before it, and do because of it.
#[derive(Debug, Clone, Copy)]
pub struct Traces {
    /// Makes a span, in which nothing has happened yet, part of the trace that these headers name.
    pub adopt: fn(&Span, &[(&'static str, String)]),
    /// Names the trace of the current span.
    pub current: fn() -> TraceHeaders,
}

/// Traces of requests whose starts wait to be claimed. A start that another process claims begins a trace of its own.
#[derive(Debug, Default)]
pub(crate) struct Askers(Mutex<BTreeMap<StartTaskId, TraceHeaders>>);

impl Askers {
    /// Keeps the trace of the current request, which asked for this start.
    pub(crate) fn note(&self, traces: Option<Traces>, id: StartTaskId) {
        let headers = traces.map(|it| (it.current)()).unwrap_or_default();
        if headers.is_empty() {
            return;
        }
        let Ok(mut waiting) = self.0.lock() else {
            return;
        };
        // Whatever was claimed elsewhere is forgotten some time.
        if waiting.len() >= MOST {
            waiting.pop_first();
        }
        waiting.insert(id, headers);
    }

    /// Nothing was committed under this id.
    pub(crate) fn forget(&self, id: StartTaskId) {
        if let Ok(mut waiting) = self.0.lock() {
            waiting.remove(&id);
        }
    }

    /// Makes the span of a start that was claimed part of that trace.
    pub(crate) fn adopt(&self, traces: Option<Traces>, id: StartTaskId, span: &Span) {
        let Some(traces) = traces else { return };
        let headers = self.0.lock().ok().and_then(|mut it| it.remove(&id));
        if let Some(headers) = headers {
            (traces.adopt)(span, &headers);
        }
    }
}

/// The span of the step that a start is in: the steps are states, which no call lasts as long as.
#[derive(Debug)]
pub(crate) struct StepSpan {
    status: StartStatus,
    _span: Span,
}

impl StepSpan {
    /// In the current span, which is the start's.
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

    /// Ends the span of the last step, if this is another.
    pub(crate) fn go_on(&mut self, status: StartStatus) {
        if self.status != status {
            *self = Self::enter(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_traces_wait() {
        let traces = Traces {
            adopt: |_, _| {},
            current: || vec![("traceparent", "00-1-2-01".to_owned())],
        };
        let askers = Askers::default();
        for number in 0..=MOST {
            let id = StartTaskId::new(uuid::Uuid::from_u128(number as u128));
            askers.note(Some(traces), id);
        }
        assert_eq!(askers.0.lock().unwrap().len(), MOST);
        let id = StartTaskId::new(uuid::Uuid::from_u128(MOST as u128));
        askers.adopt(Some(traces), id, &Span::none());
        assert_eq!(askers.0.lock().unwrap().len(), MOST - 1);
        askers.forget(StartTaskId::new(uuid::Uuid::from_u128(MOST as u128 - 1)));
        assert_eq!(askers.0.lock().unwrap().len(), MOST - 2);
    }
}
