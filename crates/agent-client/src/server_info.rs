//! `/server_info`: which dialect an agent server speaks.

use domain::agent::AgentError;
use serde_json::Value;

/// What we read of `/server_info`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerInfo {
    pub(crate) version: String,
    /// Names for `agent.tools` that this installation can serve. Empty when it does not say.
    pub(crate) usable_tools: Vec<String>,
    /// Seconds since it was last asked to do something.
    pub(crate) idle_time: Option<f64>,
}

impl ServerInfo {
    pub(crate) fn read(document: &Value) -> Result<Self, AgentError> {
        let version = document["version"]
            .as_str()
            .filter(|v| !v.is_empty() && v.len() <= 100);
        let tools = document["usable_tools"].as_array().into_iter().flatten();
        Ok(Self {
            version: version
                .ok_or_else(|| AgentError::Malformed("server_info names no version".to_owned()))?
                .to_owned(),
            usable_tools: tools.filter_map(Value::as_str).map(str::to_owned).collect(),
            idle_time: document["idle_time"].as_f64(),
        })
    }

    /// 1.58 and later: the fragments of a streamed answer stay out of webhooks. 1.34 posts them. What lies between was not
    /// tried and counts as old.
    pub(crate) fn keeps_fragments(&self) -> bool {
        let mut parts = self.version.split('.').map(|p| p.parse::<u32>().ok());
        let (major, minor) = (parts.next().flatten(), parts.next().flatten());
        match (major, minor) {
            (Some(major), Some(minor)) => (major, minor) >= (1, 58),
            // A build without a number is newer than any release.
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
    fn the_version_decides() {
        for (version, keeps) in [
            ("1.34.0", false),
            ("1.57.9", false),
            ("1.58.0", true),
            ("2.0.0", true),
            ("0.0.0-dev", false),
            ("main", true),
        ] {
            let info = ServerInfo::read(&json!({"version": version})).unwrap();
            assert_eq!(info.keeps_fragments(), keeps, "{version}");
        }
        assert!(ServerInfo::read(&json!({})).is_err());
        assert!(ServerInfo::read(&json!({"version": 3})).is_err());
    }
}
