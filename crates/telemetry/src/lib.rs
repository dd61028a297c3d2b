//! What this process tells of its work: lines of a log ([`lines`]), and traces for an OpenTelemetry collector, to which spans go
//! out as OTLP, protobuf over HTTP.
//!
//! Knows: `tracing`, OpenTelemetry, the collector, W3C trace contexts. Must never know: what the service does. What becomes a span, and
//! with which attributes, is said where the work is done, with `tracing`; no secret is in there, as none is in the log.
//!
//! Nothing here makes a request wait. Spans that have ended go into a queue of [`MAX_QUEUED_SPANS`], and what does not fit is dropped;
//! a thread of its own takes them out and sends them. A collector that is not there costs those spans, and one line in the
//! log a minute.

mod context;
mod export;
mod http;
pub mod lines;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanLimits,
};
use secrecy::SecretString;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

pub use context::{adopt, current};
use export::Exporter;

/// Spans that may wait to be sent.
pub const MAX_QUEUED_SPANS: usize = 2048;
/// How many are sent at once,
const MAX_BATCH_SPANS: usize = 512;
/// and how long they wait for others.
const EXPORT_INTERVAL: Duration = Duration::from_secs(2);
/// What one span may carry; further attributes and events are counted and left out.
const MAX_SPAN_ATTRIBUTES: u32 = 64;
const MAX_SPAN_EVENTS: u32 = 32;

/// Where traces go, and which.
#[derive(Debug, Clone)]
pub struct Config {
    /// The collector, without `/v1/traces` (as `OTEL_EXPORTER_OTLP_ENDPOINT` names it).
    pub endpoint: Url,
    /// Headers of every request to it, for example with a token.
    pub headers: Vec<(String, SecretString)>,
    /// `service.name` of all spans.
    pub service_name: String,
    /// `service.version` of all spans.
    pub service_version: &'static str,
    /// Which share of the traces that begin here is recorded, from 0 to 1. Who calls with a trace has decided for it.
    pub sampling_ratio: f64,
    /// Spans of these crates are traces (the first parts of `tracing`'s targets).
    pub targets: &'static [&'static str],
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A header that HTTP does not allow. Says its position, as the text may be the secret.
    #[error("header {0} of telemetry.headers is none that HTTP allows: it must be NAME=VALUE")]
    Header(usize),
    /// An endpoint that nothing can be sent to.
    #[error("nothing can be sent to telemetry.otlp_endpoint: {0}")]
    Endpoint(String),
    /// The operating system gives no thread.
    #[error("cannot start the exporter: {0}")]
    Thread(#[from] std::io::Error),
}

/// The export of traces, from [`Telemetry::open`] to [`Telemetry::finish`]. Clones are the same.
#[derive(Debug, Clone)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    targets: &'static [&'static str],
}

impl Telemetry {
    /// Begins. Needs no runtime: the exporter has a thread of its own, which also outlives the service's.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let exporter = Exporter::new(config)?;
        // All is said here: what is not would be read from the environment.
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

    /// What makes traces of spans, beside the log: all spans of the configured crates up to `debug`, and in them what is
    /// logged as a warning or an error.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let targets = self.targets;
        let wanted = move |metadata: &Metadata<'_>| is_wanted(metadata, targets);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("agent-workspace"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(wanted).with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends what is left, at most for so long. `false` if that was too short. Blocks; spans that end later are lost.
    pub fn finish(&self, limit: Duration) -> bool {
        self.provider.shutdown_with_timeout(limit).is_ok()
    }
}

fn is_wanted(metadata: &Metadata<'_>, targets: &[&str]) -> bool {
    let level = if metadata.is_span() {
        Level::DEBUG
    } else {
        Level::WARN
    };
    let first = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() <= level && targets.contains(&first)
}
