//! Trace export.

use anyhow::Context as _;
use application::trace::TracePropagation;

use crate::config::Config;

pub(crate) use telemetry::Telemetry;

/// Crates whose spans are exported: the service's own, not those of libraries.
const TRACED_CRATES: &[&str] = &[
    "agent_client",
    "agent_workspace",
    "application",
    "gateway",
    "git_hosting",
    "http_api",
    // All backends.
    "sandbox_",
    "skill_library",
    "store_sql",
];

pub(crate) fn open(config: &Config) -> anyhow::Result<Option<Telemetry>> {
    let settings = &config.telemetry;
    let Some(endpoint) = settings.otlp_endpoint.clone() else {
        return Ok(None);
    };
    let export = telemetry::Config {
        endpoint,
        headers: settings.headers.clone(),
        service_name: settings.service_name.clone(),
        service_version: env!("CARGO_PKG_VERSION"),
        sampling_ratio: settings.sampling_ratio,
        targets: TRACED_CRATES,
    };
    let telemetry =
        Telemetry::open(&export).context("cannot export traces to telemetry.otlp_endpoint")?;
    Ok(Some(telemetry))
}

/// Propagates incoming trace contexts, if traces are exported.
pub(super) fn propagation(config: &Config) -> Option<TracePropagation> {
    config
        .telemetry
        .otlp_endpoint
        .as_ref()
        .map(|_| TracePropagation {
            adopt: telemetry::adopt,
            current: telemetry::current,
        })
}
