//! Writes the log ([`log_writer`]) and exports traces to an OpenTelemetry collector as OTLP, protobuf over HTTP.
//!
//! Knows: `tracing`, OpenTelemetry, the collector, W3C trace contexts. Must never know: what the service does. Other
//! crates create spans and attributes with `tracing`. Neither spans nor log lines contain secrets.
//!
//! Telemetry never delays a request. Ended spans enter a queue of [`MAX_QUEUED_SPANS`], which drops spans when it is full. A
//! separate thread sends them. An unreachable collector costs its spans and one log line a minute.

mod context;
mod export;
mod http;
pub mod log_writer;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanLimits,
};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

pub use context::{adopt, current};
use export::Exporter;
pub use http::parse_header;
pub use hyper::header::{HeaderName, HeaderValue};

/// Capacity of the queue of spans.
pub const MAX_QUEUED_SPANS: usize = 2048;
/// Spans per request.
const MAX_BATCH_SPANS: usize = 512;
/// Interval between two batches.
const EXPORT_INTERVAL: Duration = Duration::from_secs(2);
/// Limits of one span. Further attributes and events are counted and dropped.
const MAX_SPAN_ATTRIBUTES: u32 = 64;
const MAX_SPAN_EVENTS: u32 = 32;

/// Configuration of the export.
#[derive(Debug, Clone)]
pub struct Config {
    /// The collector, without `/v1/traces` (as `OTEL_EXPORTER_OTLP_ENDPOINT` names it).
    pub endpoint: Url,
    /// Headers of every request to it, for example with a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `service.name` of all spans.
    pub service_name: String,
    /// `service.version` of all spans.
    pub service_version: &'static str,
    /// Share of the traces that begin here to record, from 0 to 1. A caller's trace context decides for its own trace.
    pub sampling_ratio: f64,
    /// Crates whose spans are exported: how `tracing`'s targets begin.
    pub targets: &'static [&'static str],
}

/// Error of starting the export.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid endpoint.
    #[error("telemetry.otlp_endpoint is not usable: {0}")]
    Endpoint(String),
    /// The exporter's thread cannot be started.
    #[error("cannot start the thread that exports traces: {0}")]
    Thread(#[from] std::io::Error),
}

/// The export of traces, from [`Telemetry::open`] to [`Telemetry::finish`]. Clones share it.
#[derive(Debug, Clone)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    targets: &'static [&'static str],
}

impl Telemetry {
    /// Starts the export. Needs no runtime: the exporter's own thread outlives the service's runtime.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let exporter = Exporter::new(config)?;
        // Set every option, because the library reads missing ones from the environment.
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let attributes = [
            KeyValue::new("service.name", config.service_name.clone()),
            KeyValue::new("service.version", config.service_version),
        ];
        let limits = SpanLimits {
            max_attributes_per_span: MAX_SPAN_ATTRIBUTES,
            max_events_per_span: MAX_SPAN_EVENTS,
            ..SpanLimits::default()
        };
        let ratio = Sampler::TraceIdRatioBased(config.sampling_ratio);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(ratio)))
            .with_span_limits(limits)
            .with_resource(
                Resource::builder_empty()
                    .with_attributes(attributes)
                    .build(),
            )
            .build();
        Ok(Self {
            provider,
            targets: config.targets,
        })
    }

    /// The layer that exports spans of the configured crates up to `debug`, with warnings and errors as their events.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let targets = self.targets;
        let is_exported = move |metadata: &Metadata<'_>| is_exported(metadata, targets);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("agent-workspace"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(is_exported).with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends the queued spans within `limit`. Returns `false` on a timeout. Blocks. Later spans are lost.
    pub fn finish(&self, limit: Duration) -> bool {
        self.provider.shutdown_with_timeout(limit).is_ok()
    }
}

fn is_exported(metadata: &Metadata<'_>, targets: &[&str]) -> bool {
    let level = if metadata.is_span() {
        Level::DEBUG
    } else {
        Level::WARN
    };
    let target = metadata.target();
    *metadata.level() <= level && targets.iter().any(|start| target.starts_with(start))
}
