//! The log, on standard error: standard output is for what a command was asked to print. Beside it, traces for a collector.

use std::fmt::{Debug, Formatter, Result};
use std::io::{IsTerminal as _, stderr};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;
use telemetry::lines::{Fields, Lines, Text, Wanted};
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::compose::Telemetry;
use crate::config::{LogFormat, LogSettings};

/// Crates that say too much: at `info` what we say ourselves, or an error for each client that does not speak HTTP
/// ([`crate::listeners::malformed_log`]).
const NOISY_CRATES: [(&str, LevelFilter); 2] = [
    ("actix_server", LevelFilter::WARN),
    ("actix_http", LevelFilter::OFF),
];
/// How long lines that wait may take, where something is to follow them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process, once it has begun.
static LINES: OnceLock<Lines> = OnceLock::new();

/// What is logged, which may change while the service runs.
pub(crate) struct LogLevelHandle(reload::Handle<Targets, Registry>);

impl LogLevelHandle {
    /// Logs what this says from now on; its format needs another start.
    pub(crate) fn set(&self, log: &LogSettings) {
        // Fails only where nobody logs any more.
        let _ = self.0.reload(filter(log));
    }
}

impl Debug for LogLevelHandle {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Level")
    }
}

/// What an operator says of a crate has the last word.
fn filter(log: &LogSettings) -> Targets {
    let quiet = Targets::new().with_targets(NOISY_CRATES);
    let quiet = match log.level.default_level() {
        Some(level) => quiet.with_default(level),
        None => quiet,
    };
    quiet.with_targets(log.level.iter())
}

/// Waits until the lines so far are written, for what is to stand below them. Blocks, but not for long: whoever reads them may
/// have stopped.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.settle(FLUSH_TIMEOUT);
    }
}

/// Writes the last lines when it is dropped, also by a panic.
pub(crate) struct FlushOnDrop;

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        flush();
    }
}

/// The line about lines that were lost, in the form of the others.
fn lost_lines_message(format: LogFormat) -> fn(u64) -> String {
    match format {
        LogFormat::Text => |lost| format!("WARN lines of the log were lost lost_lines={lost}\n"),
        LogFormat::Json => |lost| {
            let fields = json!({"message": "lines of the log were lost", "lost_lines": lost});
            let line = json!({"level": "WARN", "target": module_path!(), "fields": fields});
            format!("{line}\n")
        },
    }
}

/// Starts logging, and tracing if traces are exported. Once per process.
pub(crate) fn start(log: &LogSettings, telemetry: Option<&Telemetry>) -> LogLevelHandle {
    let (filter, level) = Wanted::new(filter(log));
    let writer = match Lines::start(stderr(), lost_lines_message(log.format)) {
        Ok(lines) => BoxMakeWriter::new(LINES.get_or_init(|| lines).clone()),
        // No thread is to be had: slower, and as good.
        Err(_) => BoxMakeWriter::new(stderr),
    };
    match telemetry {
        None => registry()
            .with(filter)
            .with(layer(log.format, writer))
            .init(),
        // A filter each: what is traced does not depend on what is logged. Each line and span costs more so.
        Some(telemetry) => registry()
            .with(layer(log.format, writer).with_filter(filter))
            .with(telemetry.layer())
            .init(),
    }
    LogLevelHandle(level)
}

/// What writes the lines.
fn layer<S>(format: LogFormat, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().with_writer(writer);
    match format {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text if stderr().is_terminal() => lines.with_ansi(true).with_target(false).boxed(),
        LogFormat::Text => lines
            .event_format(Text)
            .fmt_fields(Fields)
            .with_ansi(false)
            .boxed(),
    }
}
