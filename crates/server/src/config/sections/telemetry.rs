//! Section `telemetry`.

use settings::SettingReader;
use telemetry::Config;

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

/// The export of traces; `None` without a collector.
pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Option<Config> {
    let endpoint = reader.optional_url("telemetry.otlp_endpoint");
    let headers = reader.parsed_secrets(
        "telemetry.headers",
        "entries NAME=VALUE that are valid HTTP headers",
        telemetry::parse_header,
    );
    let service_name = reader.parsed(
        "telemetry.service_name",
        "1 to 255 visible characters",
        |text| {
            let is_name = (1..=255).contains(&text.len()) && !text.contains(char::is_control);
            is_name.then(|| text.to_owned())
        },
    );
    let sampling_ratio = reader.parsed(
        "telemetry.sampling_ratio",
        "a number from 0 to 1, e.g. 0.1",
        |text| {
            let ratio = text.parse().ok();
            ratio.filter(|ratio| (0.0..=1.0).contains(ratio))
        },
    );
    Some(Config {
        endpoint: endpoint?,
        headers,
        service_name,
        service_version: env!("CARGO_PKG_VERSION"),
        sampling_ratio,
        targets: TRACED_CRATES,
    })
}
