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
use crate::config::{Format, Log};

/// Crates that say too much: at `info` what we say ourselves, or an error for each client that does not speak HTTP
/// ([`crate::malformed`]).
const QUIET: [(&str, LevelFilter); 2] = [
    ("actix_server", LevelFilter::WARN),
    ("actix_http", LevelFilter::OFF),
];
/// How long lines that wait may take, where something is to follow them.
const SETTLING: Duration = Duration::from_secs(1);

/// The log of this process, once it has begun.
static LINES: OnceLock<Lines> = OnceLock::new();

/// What is logged, which may change while the service runs.
pub(crate) struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Logs what this says from now on; its format needs another start.
    pub(crate) fn set(&self, log: &Log) {
        // Fails only where nobody logs any more.
        let _ = self.0.reload(filter(log));
    }
}

impl Debug for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Level")
    }
}

/// What an operator says of a crate has the last word.
fn filter(log: &Log) -> Targets {
    let quiet = Targets::new().with_targets(QUIET);
    let quiet = match log.level.default_level() {
        Some(level) => quiet.with_default(level),
        None => quiet,
    };
    quiet.with_targets(log.level.iter())
}

/// Waits until the lines so far are written, for what is to stand below them. Blocks, but not for long: whoever reads them may
/// have stopped.
pub(crate) fn settle() {
    if let Some(lines) = LINES.get() {
        lines.settle(SETTLING);
    }
}

/// Writes the last lines when it is dropped, also by a panic.
pub(crate) struct Settling;

impl Drop for Settling {
    fn drop(&mut self) {
        settle();
    }
}

/// The line about lines that were lost, in the form of the others.
fn of_lost(format: Format) -> fn(u64) -> String {
    match format {
        Format::Text => |lost| format!("WARN lines of the log were lost lost_lines={lost}\n"),
        Format::Json => |lost| {
            let fields = json!({"message": "lines of the log were lost", "lost_lines": lost});
            let line = json!({"level": "WARN", "target": module_path!(), "fields": fields});
            format!("{line}\n")
        },
    }
}

/// Starts logging, and tracing if traces are exported. Once per process.
pub(crate) fn start(log: &Log, telemetry: Option<&Telemetry>) -> Level {
    let (filter, level) = Wanted::new(filter(log));
    let writer = match Lines::start(stderr(), of_lost(log.format)) {
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
    Level(level)
}

/// What writes the lines.
fn layer<S>(format: Format, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().with_writer(writer);
    match format {
        Format::Json => lines.json().boxed(),
        Format::Text if stderr().is_terminal() => lines.with_ansi(true).with_target(false).boxed(),
        Format::Text => lines
            .event_format(Text)
            .fmt_fields(Fields)
            .with_ansi(false)
            .boxed(),
    }
}
