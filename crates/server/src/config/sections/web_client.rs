//! Section `web_client`.

use chrono::{DateTime, Utc};
use domain::clock::Timestamp;
use http_api::WebClient;
use settings::SettingReader;

/// Longest message on every page, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;

pub(in crate::config) fn read(reader: &SettingReader<'_>) -> WebClient {
    WebClient {
        maintenance_start_time: reader.optional_parsed(
            "web_client.maintenance_start_time",
            "a time with its zone, e.g. 2026-12-24T18:00:00Z",
            time,
        ),
        faulty_models: reader.list("web_client.faulty_models"),
        error_message: reader.optional_parsed(
            "web_client.error_message",
            "a text of at most 1000 characters",
            |text| (text.chars().count() <= MAX_MESSAGE_CHARS).then(|| text.to_owned()),
        ),
        hide_llm_settings: reader.switch("web_client.hide_llm_settings"),
        hide_integrations_page: reader.switch("web_client.hide_integrations_page"),
        enable_acp: reader.switch("web_client.enable_acp"),
    }
}

fn time(text: &str) -> Option<Timestamp> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some(Timestamp::new(time.with_timezone(&Utc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_a_zone() {
        let parsed = time("2026-12-24T19:00:00+01:00").unwrap();
        assert_eq!(parsed.to_string(), "2026-12-24T18:00:00.000000Z");
        assert_eq!(time("2026-12-24T18:00:00"), None);
        assert_eq!(time("soon"), None);
    }
}
