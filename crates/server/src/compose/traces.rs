//! TracePropagation, where they are exported.

use anyhow::Context as _;
use application::trace::TracePropagation;

use crate::config::Config;

pub(crate) use telemetry::Telemetry;

/// Whose spans are traces: what we do, not what libraries do for it.
const TRACED_CRATES: &[&str] = &[
    "agent_client",
    "agent_workspace",
    "application",
    "gateway",
    "git_hosting",
    "http_api",
    "sandbox_docker",
    "sandbox_process",
    "skill_library",
    "store_sql",
];

/// The export that is configured, if one is.
pub(crate) fn open(config: &Config) -> anyhow::Result<Option<Telemetry>> {
    let wanted = &config.telemetry;
    let Some(endpoint) = wanted.otlp_endpoint.clone() else {
        return Ok(None);
    };
    let export = telemetry::Config {
        endpoint,
        headers: wanted.headers.clone(),
        service_name: wanted.service_name.clone(),
        service_version: env!("CARGO_PKG_VERSION"),
        sampling_ratio: wanted.sampling_ratio,
        targets: TRACED_CRATES,
    };
    let opened = Telemetry::open(&export).context("traces cannot be exported")?;
    Ok(Some(opened))
}

/// How traces of others go on here, if they are exported.
pub(super) fn handed_on(config: &Config) -> Option<TracePropagation> {
    config.telemetry.otlp_endpoint.as_ref().map(|_| TracePropagation {
        adopt: telemetry::adopt,
        current: telemetry::current,
    })
}
