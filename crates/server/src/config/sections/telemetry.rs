//! Section `telemetry`.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use settings::SettingReader;

/// The section `telemetry`.
#[derive(Debug, Clone)]
pub(crate) struct TelemetrySettings {
    /// The collector; without one, nothing is exported.
    pub(crate) otlp_endpoint: Option<Url>,
    /// Headers of exports.
    pub(crate) headers: Vec<(String, SecretString)>,
    /// The service's name in traces.
    pub(crate) service_name: String,
    /// The share of traces that is recorded.
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

fn headers(reader: &SettingReader<'_>) -> Vec<(String, SecretString)> {
    let listed = reader.secret_list("telemetry.headers");
    let parsed: Option<Vec<_>> = listed.iter().map(header).collect();
    parsed.unwrap_or_else(|| {
        reader.problem(
            "telemetry.headers",
            "(or its file) must hold entries NAME=VALUE that are valid HTTP headers",
        );
        Vec::new()
    })
}

/// A valid header (RFC 9110, sections 5.1 and 5.5) without surrounding white space.
fn header(text: &SecretString) -> Option<(String, SecretString)> {
    let (name, value) = text.expose_secret().split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_header = !name.is_empty()
        && name.bytes().all(is_token)
        && value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
    is_header.then(|| (name.to_owned(), value.into()))
}
