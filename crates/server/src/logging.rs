//! The log on standard error, and traces for a collector. Standard output is for the output of commands.

use std::io::{IsTerminal as _, stderr};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;
use telemetry::log_writer::LogWriter;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::compose::traces::Telemetry;
use crate::config::{LogFormat, LogSettings};

/// Crates that log too much: at `info` they repeat the service's own lines, or log an error for each client that does not
/// speak HTTP ([`crate::listeners::malformed_log`]), or for each attempt at a request of which the service logs the end.
const NOISY_CRATES: [(&str, LevelFilter); 3] = [
    ("actix_server", LevelFilter::WARN),
    ("actix_http", LevelFilter::OFF),
    ("kube_client", LevelFilter::OFF),
];
/// Time to write buffered lines before other output follows.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LINES: OnceLock<LogWriter> = OnceLock::new();

pub(crate) struct LogLevelHandle(reload::Handle<Targets, Registry>);

impl LogLevelHandle {
    /// Applies the level. A changed format needs a restart.
    pub(crate) fn set(&self, log: &LogSettings) {
        // Fails only after the subscriber is gone.
        let _ = self.0.reload(filter(log));
    }
}

/// The operator's setting for a crate takes precedence.
fn filter(log: &LogSettings) -> Targets {
    let quiet = Targets::new().with_targets(NOISY_CRATES);
    let quiet = match log.level.default_level() {
        Some(level) => quiet.with_default(level),
        None => quiet,
    };
    quiet.with_targets(log.level.iter())
}

/// Waits until buffered lines are written, so that following output appears below them. Blocks up to [`FLUSH_TIMEOUT`],
/// because the reader of the log may be stuck.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        let _ = lines.settle(FLUSH_TIMEOUT);
    }
}

/// Flushes the log on drop, also after a panic.
pub(crate) struct FlushOnDrop;

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        flush();
    }
}

/// Formats the line that reports dropped lines.
fn lost_lines_message(format: LogFormat) -> fn(u64) -> String {
    match format {
        LogFormat::Text => |lost| {
            format!("WARN log lines were dropped (the writer was too slow) lost_lines={lost}\n")
        },
        LogFormat::Json => |lost| {
            let message = "log lines were dropped (the writer was too slow)";
            let fields = json!({"message": message, "lost_lines": lost});
            let line = json!({"level": "WARN", "target": module_path!(), "fields": fields});
            format!("{line}\n")
        },
    }
}

/// Starts logging, and tracing if traces are exported. Call it once per process.
pub(crate) fn start(log: &LogSettings, telemetry: Option<&Telemetry>) -> LogLevelHandle {
    let (filter, level) = reload::Layer::new(filter(log));
    let writer = match LogWriter::start(stderr(), lost_lines_message(log.format)) {
        Ok(lines) => {
            let lines = LINES.get_or_init(|| lines).clone();
            // JSON escapes control characters. For a terminal the library escapes them, and adds colours.
            let is_plain = log.format == LogFormat::Text && !stderr().is_terminal();
            BoxMakeWriter::new(if is_plain {
                lines.escaping_controls()
            } else {
                lines
            })
        }
        // No thread is available: write directly, which is slower.
        Err(_) => BoxMakeWriter::new(stderr),
    };
    match telemetry {
        None => registry()
            .with(filter)
            .with(layer(log.format, writer))
            .init(),
        // Separate filters, so that traces do not depend on the log level. This makes each line and span more expensive.
        Some(telemetry) => registry()
            .with(layer(log.format, writer).with_filter(filter))
            .with(telemetry.layer())
            .init(),
    }
    LogLevelHandle(level)
}

fn layer<S>(format: LogFormat, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().with_writer(writer);
    match format {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text => lines
            .with_ansi(stderr().is_terminal())
            .with_target(false)
            .boxed(),
    }
}
