//! The MCP servers of a launch: the agent's list, and a test of each server.

use std::time::Duration;

use domain::agent::{AgentEndpoint, LaunchRequest, McpServer};
use futures::future::join_all;
use hyper::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use tracing::warn;

use crate::transport::{AgentCall, Transport};

/// Tavily's hosted MCP server: the agent's search tool.
const SEARCH_URL: &str = "https://mcp.tavily.com/mcp/";
const SEARCH_NAME: &str = "tavily";

/// Largest response of a test, which lists the server's tools.
const MAX_TEST_RESPONSE_BYTES: usize = 2 << 20;

/// One entry of the agent's `mcp_config`.
pub(crate) struct McpEntry {
    pub(crate) name: String,
    pub(crate) document: Value,
}

/// The MCP servers of a launch, with the search service. A server of the user with the same name replaces the search service.
/// An ACP agent gets only the user's servers, because it has its own search.
fn entries(request: &LaunchRequest) -> Vec<McpEntry> {
    let mut entries: Vec<McpEntry> = request.mcp.iter().map(entry).collect();
    if let Some(key) = &request.search_api_key
        && request.acp.is_none()
        && entries.iter().all(|entry| entry.name != SEARCH_NAME)
    {
        // The key goes into a header, not into the URL as in Tavily's examples, because URLs appear in logs and responses.
        let document = json!({"url": SEARCH_URL, "transport": "http", "auth": bearer(key)});
        entries.push(McpEntry {
            name: SEARCH_NAME.to_owned(),
            document,
        });
    }
    entries
}

fn entry(server: &McpServer) -> McpEntry {
    match server {
        McpServer::Remote {
            name,
            url,
            api_key,
            sse,
            timeout,
        } => {
            let transport = if *sse { "sse" } else { "http" };
            let mut document = json!({"url": url, "transport": transport});
            if let Some(key) = api_key {
                document["auth"] = bearer(key);
            }
            if let Some(seconds) = timeout {
                document["timeout"] = json!(seconds);
            }
            McpEntry {
                name: name.clone(),
                document,
            }
        }
        McpServer::Stdio {
            name,
            command,
            args,
            env,
        } => {
            let env: Map<String, Value> = env
                .iter()
                .map(|(k, v)| (k.clone(), v.expose_secret().into()))
                .collect();
            let document =
                json!({"transport": "stdio", "command": command, "args": args, "env": env});
            McpEntry {
                name: name.clone(),
                document,
            }
        }
    }
}

fn bearer(key: &SecretString) -> Value {
    json!({"strategy": "bearer", "value": key.expose_secret()})
}

/// Tests all servers concurrently within `time_limit`, so a start waits that long at most. An error is a note for the user about
/// a server that does not respond.
pub(crate) async fn test_servers(
    transport: &Transport,
    at: &AgentEndpoint,
    request: &LaunchRequest,
    time_limit: Duration,
) -> Vec<Result<McpEntry, String>> {
    let tests = entries(request).into_iter().map(|entry| async move {
        if is_reachable(transport, at, &entry, time_limit).await {
            return Ok(entry);
        }
        let name = entry.name;
        warn!(
            mcp.server = name,
            sandbox.id = %at.sandbox,
            "MCP server does not respond; the conversation starts without it"
        );
        let note = "does not answer; the conversation was started without it.";
        Err(format!("MCP server {name} {note}"))
    });
    join_all(tests).await
}

async fn is_reachable(
    transport: &Transport,
    at: &AgentEndpoint,
    entry: &McpEntry,
    time_limit: Duration,
) -> bool {
    let body = json!({"server": entry.document, "timeout": time_limit.as_secs_f64() * 0.9});
    let call = AgentCall::new(Method::POST, at, &["api", "mcp", "test"], time_limit)
        .json(&body)
        .max_response_bytes(MAX_TEST_RESPONSE_BYTES)
        .idempotent();
    match transport.exchange(&call).await {
        Ok(reply) if reply.is_success() => reply.lenient_document()["ok"] == true,
        // An agent server without this route cannot test, so the entry counts as reachable.
        Ok(reply) => matches!(reply.status, 404 | 405),
        Err(_) => false,
    }
}
