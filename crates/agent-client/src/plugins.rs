//! The plugins of a launch: their documents for the agent server, and a test of each plugin.

use std::time::{Duration, Instant};

use domain::agent::{AgentEndpoint, AgentError, LaunchRequest, Plugin};
use domain::error::chain;
use futures::stream::{self, StreamExt as _};
use hyper::Method;
use serde_json::{Value, json};
use tracing::warn;

use crate::transport::{AgentCall, Transport};

/// Plugins tested concurrently. Each test clones a repository in the sandbox.
const MAX_CONCURRENT_TESTS: usize = 4;
/// Timeout of all tests together, as a multiple of the timeout of one.
const TIMEOUT_FACTOR: u32 = 3;
const MAX_RESPONSE_BYTES: usize = 2 << 20;

/// `PluginSource` of the agent server. It has no parameters: these are a text for the agent.
pub(crate) fn document(plugin: &Plugin) -> Value {
    json!({"source": plugin.source, "ref": plugin.reference, "repo_path": plugin.repo_path})
}

/// Tests which plugins load, because a plugin that does not load would fail every run of the conversation. Each test takes
/// `time_limit` at most. Plugins without a test when the total time is over count as not loadable. An error is a note for the
/// user about a plugin that does not load.
///
/// The agent server has no route for such a test. So a test installs the plugin and removes it. The installation fetches the
/// plugin into the agent server's cache, where the launch finds it.
pub(crate) async fn test_plugins<'a>(
    transport: &Transport,
    at: &AgentEndpoint,
    request: &'a LaunchRequest,
    time_limit: Duration,
) -> Vec<Result<&'a Plugin, String>> {
    let deadline = Instant::now() + time_limit.saturating_mul(TIMEOUT_FACTOR);
    let tests = request.plugins.iter().map(|plugin| async move {
        if Instant::now() < deadline && is_loadable(transport, at, plugin, time_limit).await {
            return Ok(plugin);
        }
        let label = label(plugin);
        warn!(
            plugin = label,
            sandbox.id = %at.sandbox,
            "plugin does not load; the conversation starts without it"
        );
        let note = "could not be fetched or read; the conversation was started without it.";
        Err(format!("Plugin {label} {note}"))
    });
    let tests: Vec<_> = tests.collect();
    stream::iter(tests)
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
    // A placeholder `${NAME}` stands for a secret of the conversation, which does not exist yet, so no test is possible.
    let mut texts = plugin.reference.iter().chain([&plugin.source]);
    if texts.any(|text| text.contains("${")) {
        return true;
    }
    let path = ["api", "plugins", "install"];
    let call = AgentCall::new(Method::POST, at, &path, time_limit)
        .json(&document(plugin))
        .max_response_bytes(MAX_RESPONSE_BYTES);
    let Ok(reply) = transport.exchange(&call).await else {
        return false;
    };
    if reply.is_success() {
        let installed = reply.lenient_document();
        let name = installed["name"].as_str().unwrap_or_default();
        let path = ["api", "plugins", "installed", name];
        let call = AgentCall::new(Method::DELETE, at, &path, time_limit);
        if let Err(error) = transport.exchange(&call).await {
            let error = AgentError::from(error);
            warn!(
                error = %chain(&error),
                plugin = label(plugin),
                sandbox.id = %at.sandbox,
                "cannot uninstall a plugin after its test; it stays in the sandbox"
            );
        }
    }
    // 409: installed already. 404 and 405: an old agent server has no such route, so the plugin counts as loadable.
    reply.is_success() || matches!(reply.status, 404 | 405 | 409)
}

/// A short name for logs and notes. Not the URL, which may contain credentials.
fn label(plugin: &Plugin) -> String {
    let path = plugin.repo_path.as_deref().unwrap_or(&plugin.source);
    let last = path
        .trim_end_matches(['/', '\\'])
        .rsplit(['/', '\\', ':', '@'])
        .next();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    last.unwrap_or_default()
        .chars()
        .filter(is_plain)
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
