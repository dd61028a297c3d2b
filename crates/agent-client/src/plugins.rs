//! The plugins of a launch: the agent server's documents, and which of them load.

use std::time::{Duration, Instant};

use domain::agent::{AgentEndpoint, AgentError, Plugin};
use domain::error::chain;
use futures::stream::{self, StreamExt as _};
use hyper::Method;
use serde_json::{Value, json};
use tracing::warn;

use crate::transport::{AgentCall, Transport};

/// Plugins tested at the same time. Each test clones a repository in the sandbox.
const MAX_CONCURRENT_TESTS: usize = 4;
/// Timeout of all tests together, as a multiple of the timeout of one.
const TIMEOUT_FACTOR: u32 = 3;
/// Largest response that is read.
const MAX_RESPONSE_BYTES: usize = 2 << 20;

/// `PluginSource` of the agent server. Parameters are for the agent to read, not for it.
pub(crate) fn document(plugin: &Plugin) -> Value {
    json!({"source": plugin.source, "ref": plugin.reference, "repo_path": plugin.repo_path})
}

/// Which of the plugins load, in their order. One that does not would fail every run of the conversation. A few
/// are asked at once, each for `time_limit` at most; plugins that are not tried in time count as not loadable.
///
/// An agent server has no route that only tries: it is installed, which fetches and reads it (and leaves what was fetched
/// in its cache, for the launch), and taken away again.
pub(crate) async fn loadable_plugins(
    transport: &Transport,
    at: &AgentEndpoint,
    plugins: &[Plugin],
    time_limit: Duration,
) -> Vec<bool> {
    let until = Instant::now() + time_limit.saturating_mul(TIMEOUT_FACTOR);
    let tried: Vec<_> = plugins
        .iter()
        .map(|plugin| async move {
            let is_loadable =
                Instant::now() < until && is_loadable(transport, at, plugin, time_limit).await;
            if !is_loadable {
                warn!(plugin = label(plugin), "plugin does not load");
            }
            is_loadable
        })
        .collect();
    stream::iter(tried)
        .buffered(MAX_CONCURRENT_TESTS)
        .collect()
        .await
}

async fn is_loadable(
    transport: &Transport,
    at: &AgentEndpoint,
    plugin: &Plugin,
    time_limit: Duration,
) -> bool {
    // The agent server fills in secrets of the conversation, which is not there yet.
    let named = plugin.reference.iter().chain([&plugin.source]);
    if named.into_iter().any(|text| text.contains("${")) {
        return true;
    }
    let install = ["api", "plugins", "install"];
    let Ok(call) = AgentCall::new(Method::POST, at, &install, time_limit) else {
        return false;
    };
    let call = call.json(&document(plugin)).at_most(MAX_RESPONSE_BYTES);
    let Ok(reply) = transport.exchange(&call).await else {
        return false;
    };
    if reply.is_success() {
        let installed: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let path = ["api", "plugins", "installed"];
        let name = installed["name"].as_str().unwrap_or_default();
        if let Ok(call) = AgentCall::new(
            Method::DELETE,
            at,
            &[&path[..], &[name]].concat(),
            time_limit,
        ) && let Err(error) = transport.exchange(&call).await
        {
            let error = AgentError::from(error);
            warn!(error = %chain(&error), plugin = label(plugin), "a plugin that was tried stays installed");
        }
    }
    // 409: it is installed already; 404 and 405: a server too old for this route tells us nothing.
    reply.is_success() || matches!(reply.status, 404 | 405 | 409)
}

/// What a person calls it: no URL, which may hold credentials.
pub(crate) fn label(plugin: &Plugin) -> String {
    let path = plugin.repo_path.as_deref().unwrap_or(&plugin.source);
    let last = path
        .trim_end_matches(['/', '\\'])
        .rsplit(['/', '\\', ':', '@'])
        .next();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    last.unwrap_or_default()
        .chars()
        .filter(plain)
        .take(60)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_shows_no_credentials() {
        for (source, repo_path, expected) in [
            ("github:owner/repo", None, "repo"),
            ("https://user:hunter2@host", None, "host"),
            ("https://user:hunter2@host/o/r.git", None, "r.git"),
            (
                "https://user:hunter2@host/o/r.git",
                Some("plugins/fine"),
                "fine",
            ),
            ("/plugins/mine/", None, "mine"),
        ] {
            let plugin = Plugin {
                source: source.to_owned(),
                reference: None,
                repo_path: repo_path.map(str::to_owned),
                parameters: None,
            };
            assert_eq!(label(&plugin), expected);
        }
    }
}
