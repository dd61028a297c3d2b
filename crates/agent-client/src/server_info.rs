//! `/server_info`: the release of an agent server and what it offers.

use domain::agent::AgentError;
use serde_json::Value;

use crate::errors::malformed;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerInfo {
    pub(crate) version: String,
    /// Tools that this installation can serve. Empty if the response has no such list.
    pub(crate) usable_tools: Vec<String>,
    /// Seconds since the last request that made the agent server work.
    pub(crate) idle_time: Option<f64>,
}

impl ServerInfo {
    pub(crate) fn read(document: &Value) -> Result<Self, AgentError> {
        let version = document["version"].as_str();
        let version = version.filter(|version| (1..=100).contains(&version.len()));
        let invalid = "/server_info has no `version` of at most 100 characters";
        let tools = document["usable_tools"].as_array().into_iter().flatten();
        Ok(Self {
            version: version.ok_or_else(|| malformed(invalid))?.to_owned(),
            usable_tools: tools.filter_map(Value::as_str).map(str::to_owned).collect(),
            idle_time: document["idle_time"].as_f64(),
        })
    }

    /// Whether the agent server keeps the fragments of a streamed model response out of webhooks, so that streaming can be on by
    /// default. 1.58 does; 1.34 posts each fragment, which crowds out events. Releases between them are untested and count as old.
    pub(crate) fn hides_stream_fragments(&self) -> bool {
        let mut parts = self.version.split('.').map(|p| p.parse::<u32>().ok());
        let (major, minor) = (parts.next().flatten(), parts.next().flatten());
        match (major, minor) {
            (Some(major), Some(minor)) => (major, minor) >= (1, 58),
            // A version without numbers is a development build, which counts as newer than any release.
            _ => true,
        }
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.usable_tools.iter().any(|tool| tool == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn releases_before_1_58_post_stream_fragments() {
        for (version, hides) in [
            ("1.34.0", false),
            ("1.57.9", false),
            ("1.58.0", true),
            ("2.0.0", true),
            ("0.0.0-dev", false),
            ("main", true),
        ] {
            let info = ServerInfo::read(&json!({"version": version})).unwrap();
            assert_eq!(info.hides_stream_fragments(), hides, "{version}");
        }
        assert!(ServerInfo::read(&json!({})).is_err());
        assert!(ServerInfo::read(&json!({"version": 3})).is_err());
    }
}
