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

/// Sends spans. Only the thread of the batch processor calls it, so it may block. It has its own runtime, so that it does not delay
/// requests, and because it sends the last batch while the service's runtime ends.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: CollectorClient,
    /// `None` only during drop.
    runtime: Option<Runtime>,
    resource: ResourceAttributesWithSchema,
    lost_spans: Mutex<LostSpans>,
}

/// Spans lost since the last log line.
#[derive(Debug, Default)]
struct LostSpans {
    logged_at: Option<Instant>,
    count: usize,
}

impl Exporter {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            collector: CollectorClient::new(config)?,
            runtime: Some(Builder::new_current_thread().enable_all().build()?),
            resource: ResourceAttributesWithSchema::default(),
            lost_spans: Mutex::default(),
        })
    }

    fn log_lost_spans(&self, spans: usize, reason: &str) {
        let Ok(mut lost_spans) = self.lost_spans.lock() else {
            return;
        };
        if let Some(lost) = lost_spans.add(spans, Instant::now()) {
            tracing::warn!(
                spans = lost,
                error = reason,
                "traces could not be exported and are lost; check telemetry.otlp_endpoint and its collector (logged once a \
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
    fn add(&mut self, spans: usize, now: Instant) -> Option<usize> {
        self.count += spans;
        let is_due = self
            .logged_at
            .is_none_or(|logged_at| now - logged_at >= FAILURE_LOG_INTERVAL);
        is_due.then(|| {
            self.logged_at = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let batch = batch.into_iter().map(with_semantic_name).collect();
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let Some(runtime) = &self.runtime else {
            return Err(OTelSdkError::AlreadyShutdown);
        };
        let sent = runtime.block_on(self.collector.send(request.encode_to_vec()));
        sent.map_err(|error| {
            self.log_lost_spans(spans, &error);
            OTelSdkError::InternalFailure(error)
        })
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// Sets names and kinds by the semantic conventions for HTTP, from which backends derive service maps.
fn with_semantic_name(mut span: SpanData) -> SpanData {
    let text = |span: &SpanData, key: &str| {
        let mut attributes = span.attributes.iter();
        let attribute = attributes.find(|attribute| attribute.key.as_str() == key)?;
        match &attribute.value {
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
    fn lost_spans_are_logged_once_a_minute() {
        let (mut lost_spans, start) = (LostSpans::default(), Instant::now());
        assert_eq!(lost_spans.add(3, start), Some(3));
        assert_eq!(lost_spans.add(4, start + Duration::from_secs(1)), None);
        assert_eq!(lost_spans.add(5, start + Duration::from_secs(59)), None);
        assert_eq!(lost_spans.add(6, start + FAILURE_LOG_INTERVAL), Some(15));
    }
}
