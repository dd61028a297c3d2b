//! Trace export.

use anyhow::Context as _;
use application::trace::TracePropagation;

use crate::config::Config;

pub(crate) use telemetry::Telemetry;

pub(crate) fn open(config: &Config) -> anyhow::Result<Option<Telemetry>> {
    let export = config.telemetry.as_ref().map(Telemetry::open);
    export
        .transpose()
        .context("cannot export traces to telemetry.otlp_endpoint")
}

/// Propagates incoming trace contexts, if traces are exported.
pub(super) fn propagation(config: &Config) -> Option<TracePropagation> {
    config.telemetry.as_ref().map(|_| TracePropagation {
        adopt: telemetry::adopt,
        current: telemetry::current,
    })
}
