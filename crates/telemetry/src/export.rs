//! Batches of spans on their way to the collector.

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use opentelemetry::Value;
use opentelemetry::trace::SpanKind;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};

use crate::http::CollectorClient;
use crate::{Config, Error};

/// Interval between two log lines about a failing collector.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Called by the thread of the batch processor alone, so it may block; it has a runtime of its own, because requests must
/// not wait for a turn behind it, and the last batch leaves when the service's runtime is about to end.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: CollectorClient,
    /// There until it is dropped.
    runtime: Option<Runtime>,
    resource: ResourceAttributesWithSchema,
    trouble: Mutex<LostSpans>,
}

/// Spans lost since the last log line.
#[derive(Debug, Default)]
struct LostSpans {
    said: Option<Instant>,
    lost: usize,
}

impl Exporter {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            collector: CollectorClient::new(config)?,
            runtime: Some(Builder::new_current_thread().enable_all().build()?),
            resource: ResourceAttributesWithSchema::default(),
            trouble: Mutex::default(),
        })
    }

    fn lost(&self, spans: usize, why: &str) {
        let Ok(mut trouble) = self.trouble.lock() else {
            return;
        };
        if let Some(lost) = trouble.say(spans, Instant::now()) {
            tracing::warn!(
                spans = lost,
                error = why,
                "traces could not be exported and are lost; check telemetry.otlp_endpoint and its collector (said once a \
                 minute)"
            );
        }
    }
}

/// A running DNS look-up cannot be cancelled, and the shutdown of the service must not wait for it.
impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl LostSpans {
    /// Adds lost spans. Returns their number if it is time for a log line.
    fn say(&mut self, spans: usize, now: Instant) -> Option<usize> {
        self.lost += spans;
        let is_due = self
            .said
            .is_none_or(|said| now - said >= FAILURE_LOG_INTERVAL);
        is_due.then(|| {
            self.said = Some(now);
            std::mem::take(&mut self.lost)
        })
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let batch = batch.into_iter().map(named).collect();
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let Some(runtime) = &self.runtime else {
            return Err(OTelSdkError::AlreadyShutdown);
        };
        let sent = runtime.block_on(self.collector.send(request.encode_to_vec()));
        sent.map_err(|why| {
            self.lost(spans, &why);
            OTelSdkError::InternalFailure(why)
        })
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// Sets names and kinds by the semantic conventions for HTTP, from which backends derive service maps.
fn named(mut span: SpanData) -> SpanData {
    let text = |span: &SpanData, key: &str| {
        let found = span.attributes.iter().find(|it| it.key.as_str() == key)?;
        match &found.value {
            Value::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        }
    };
    span.span_kind = match span.name.as_ref() {
        "http.request" => SpanKind::Server,
        name if name.starts_with("agent.") || name.starts_with("engine.") => SpanKind::Client,
        _ => span.span_kind,
    };
    let name = match span.name.as_ref() {
        "http.request" => text(&span, "http.method").map(|method| {
            let route = text(&span, "http.route");
            route.map_or(method.clone(), |route| format!("{method} {route}"))
        }),
        "start.step" => text(&span, "step"),
        "engine.call" => text(&span, "what"),
        _ => None,
    };
    if let Some(name) = name {
        span.name = Cow::Owned(name);
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_collector_is_one_line_a_minute() {
        let (mut trouble, start) = (LostSpans::default(), Instant::now());
        assert_eq!(trouble.say(3, start), Some(3));
        assert_eq!(trouble.say(4, start + Duration::from_secs(1)), None);
        assert_eq!(trouble.say(5, start + Duration::from_secs(59)), None);
        assert_eq!(trouble.say(6, start + FAILURE_LOG_INTERVAL), Some(15));
    }
}
