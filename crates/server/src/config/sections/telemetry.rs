//! Section `telemetry`.

use settings::SettingReader;
use telemetry::{HeaderName, HeaderValue};
use url::Url;

#[derive(Debug, Clone)]
pub(crate) struct TelemetrySettings {
    /// The collector; without one, nothing is exported.
    pub(crate) otlp_endpoint: Option<Url>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) service_name: String,
    pub(crate) sampling_ratio: f64,
}

impl TelemetrySettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            otlp_endpoint: reader.optional_url("telemetry.otlp_endpoint"),
            headers: headers(reader),
            service_name: reader.parsed(
                "telemetry.service_name",
                "1 to 255 visible characters",
                |text| {
                    let is_name =
                        (1..=255).contains(&text.len()) && !text.contains(char::is_control);
                    is_name.then(|| text.to_owned())
                },
            ),
            sampling_ratio: reader.parsed(
                "telemetry.sampling_ratio",
                "a number from 0 to 1, e.g. 0.1",
                |text| {
                    text.parse()
                        .ok()
                        .filter(|ratio| (0.0..=1.0).contains(ratio))
                },
            ),
        }
    }
}

fn headers(reader: &SettingReader<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let listed = reader.secret_list("telemetry.headers");
    let parsed: Option<Vec<_>> = listed.iter().map(telemetry::parse_header).collect();
    parsed.unwrap_or_else(|| {
        reader.problem(
            "telemetry.headers",
            "(or its file) must hold entries NAME=VALUE that are valid HTTP headers",
        );
        Vec::new()
    })
}
