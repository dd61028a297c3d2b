//! The log, on standard error: standard output is for what a command was asked to print. Beside it, traces for a collector.

use std::fmt::{Debug, Formatter, Result};
use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, fmt, registry, reload};

use crate::compose::Telemetry;
use crate::config::{Format, Log};

/// Says nothing at `info` that we do not say ourselves.
const QUIET: &str = "actix_server=warn";

/// What is logged, which may change while the service runs.
pub(crate) struct Level(reload::Handle<EnvFilter, Registry>);

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

/// The level was checked with the configuration; a directive that does not parse is left out.
fn filter(log: &Log) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{QUIET},{}", log.level))
}

/// Starts logging, and tracing if traces are exported. Once per process.
pub(crate) fn start(log: &Log, telemetry: Option<&Telemetry>) -> Level {
    let (filter, level) = reload::Layer::new(filter(log));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match log.format {
        Format::Json => lines.json().boxed(),
        Format::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
    };
    // A filter each: what is traced does not depend on what is logged.
    registry()
        .with(lines.with_filter(filter))
        .with(telemetry.map(Telemetry::layer))
        .init();
    Level(level)
}
