//! The log, on standard error: standard output is for what a command was asked to print.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{Format, Log};

/// Says nothing at `info` that we do not say ourselves.
const QUIET: &str = "actix_server=warn";

/// Starts logging. Once per process.
pub(crate) fn start(log: &Log) {
    // The level was checked with the configuration; a directive that does not parse is left out.
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", log.level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match log.format {
        Format::Json => builder.json().init(),
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .init(),
    }
}
