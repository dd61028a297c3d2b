//! The body of `POST /api/conversations`, from fields that both dialects know.

use domain::agent::{CondenserConfig, LaunchRequest, LaunchSecret, LlmConfig, McpServer};
use domain::conversation::MessageInput;
use domain::start_task::AgentType;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::server_info::ServerInfo;

/// Tavily's hosted MCP server: the agent's search tool.
const SEARCH_URL: &str = "https://mcp.tavily.com/mcp/";
const SEARCH_NAME: &str = "tavily";
/// Longest tag value that the agent server accepts; its keys are lower-case letters and digits.
const MAX_TAG: usize = 256;

/// What the planning prompt asks a plan to look like.
const PLAN_STRUCTURE: &str = "The plan has these sections, in this order: Goal, Findings (with the files they come from), \
    Approach, Steps, Tests, Open questions.";

/// One entry of the agent's `mcp_config`.
pub(crate) struct McpEntry {
    pub(crate) name: String,
    pub(crate) document: Value,
}

/// The MCP servers of a launch, the search service among them. A server of the user's with the name of the search
/// service takes its place.
pub(crate) fn mcp_entries(request: &LaunchRequest) -> Vec<McpEntry> {
    let mut entries: Vec<McpEntry> = request.mcp.iter().map(mcp_entry).collect();
    if let Some(key) = &request.search_api_key
        && entries.iter().all(|entry| entry.name != SEARCH_NAME)
    {
        // The key goes into a header and not into the URL, as in Tavily's examples: URLs are answered and logged.
        let document = json!({"url": SEARCH_URL, "transport": "http", "auth": bearer(key)});
        entries.push(McpEntry {
            name: SEARCH_NAME.to_owned(),
            document,
        });
    }
    entries
}

fn mcp_entry(server: &McpServer) -> McpEntry {
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
            let env: Map<String, Value> =
                env.iter().map(|(k, v)| (k.clone(), exposed(v))).collect();
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
    json!({"strategy": "bearer", "value": exposed(key)})
}

fn exposed(secret: &SecretString) -> Value {
    Value::String(secret.expose_secret().to_owned())
}

/// The whole body. Carries keys in clear, as the protocol wants it: never log it.
pub(crate) fn body(request: &LaunchRequest, server: &ServerInfo, mcp: &[McpEntry]) -> Value {
    let mut body = json!({
        "conversation_id": request.conversation_id.dashed(),
        "workspace": {"kind": "LocalWorkspace", "working_dir": request.working_dir},
        "confirmation_policy": {"kind": confirmation(request)},
        "security_analyzer": analyzer(request.security_analyzer.as_deref()),
        "autotitle": request.auto_title,
        "tags": tags(request),
        "secrets": secrets(request),
        "agent": agent(request, server, mcp),
    });
    if let Some(max) = request.max_iterations {
        body["max_iterations"] = json!(max.max(1));
    }
    if let Some(first) = &request.initial_message {
        body["initial_message"] = message(first);
    }
    body
}

/// The body of a message, alone or as the first one.
pub(crate) fn message(message: &MessageInput) -> Value {
    json!({"role": message.role, "content": message.content, "run": message.run})
}

fn agent(request: &LaunchRequest, server: &ServerInfo, mcp: &[McpEntry]) -> Value {
    let mcp: Map<String, Value> = mcp
        .iter()
        .map(|entry| (entry.name.clone(), entry.document.clone()))
        .collect();
    // Skills of the user's home and of public repositories stay off: the home is the sandbox's own, and public ones are
    // fetched from the network before the first answer.
    let context = json!({
        "system_message_suffix": request.system_message_suffix,
        "load_user_skills": false,
        "load_public_skills": false,
        "load_project_skills": true,
    });
    let mut agent = json!({
        "kind": "Agent",
        "llm": llm(&request.llm, "agent", server.is_tolerant()),
        "tools": tools(request.agent_type, server),
        "mcp_config": mcp,
        "agent_context": context,
    });
    if let Some(config) = &request.condenser {
        agent["condenser"] = condenser(config, &request.llm);
    }
    if request.agent_type == AgentType::Plan {
        agent["system_prompt_filename"] = json!("system_prompt_planning.j2");
        agent["system_prompt_kwargs"] = json!({"plan_structure": PLAN_STRUCTURE});
    }
    agent
}

/// `stream` is what the user set, else `streams`: old agent servers post every fragment of a streamed answer to the
/// webhook, where fragments crowd out events.
fn llm(config: &LlmConfig, usage: &str, streams: bool) -> Value {
    let mut llm = config.options.clone();
    llm.entry("stream").or_insert(json!(streams));
    for (name, secret) in &config.secret_options {
        llm.insert(name.clone(), exposed(secret));
    }
    llm.insert("model".to_owned(), json!(config.model));
    llm.insert("usage_id".to_owned(), json!(usage));
    if let Some(url) = &config.base_url {
        llm.insert("base_url".to_owned(), json!(url));
    }
    if let Some(key) = &config.api_key {
        llm.insert("api_key".to_owned(), exposed(key));
    }
    Value::Object(llm)
}

fn condenser(config: &CondenserConfig, model: &LlmConfig) -> Value {
    let mut model = llm(model, "condenser", false);
    model["stream"] = json!(false);
    // The agent server refuses the whole launch unless `keep_first + 1 < max_size / 2`.
    let max_size = config.max_size.max(6);
    let keep_first = config.keep_first.min(max_size / 2 - 2);
    json!({"kind": "LLMSummarizingCondenser", "llm": model, "max_size": max_size, "keep_first": keep_first})
}

/// A tool that an installation cannot serve is accepted at the start and fails the first run, so optional ones are asked
/// for only where they are offered.
fn tools(agent: AgentType, server: &ServerInfo) -> Value {
    let (basic, optional): (&[&str], &[&str]) = match agent {
        AgentType::Default => (
            &["terminal", "file_editor", "task_tracker"],
            &["browser_tool_set"],
        ),
        AgentType::Plan => (&["glob", "grep", "planning_file_editor"], &[]),
    };
    let offered = optional.iter().filter(|name| server.has_tool(name));
    basic
        .iter()
        .chain(offered)
        .map(|name| json!({"name": name}))
        .collect()
}

fn confirmation(request: &LaunchRequest) -> &'static str {
    match (
        request.confirmation_mode,
        request.security_analyzer.as_deref(),
    ) {
        (false, _) => "NeverConfirm",
        // Only the model itself grades its actions, so only then is there something to tell risky ones by.
        (true, Some("llm")) => "ConfirmRisky",
        (true, _) => "AlwaysConfirm",
    }
}

/// An analyzer that the agent server does not have would refuse the launch; without one a policy that asks still asks.
fn analyzer(name: Option<&str>) -> Value {
    match name {
        Some("llm") => json!({"kind": "LLMSecurityAnalyzer"}),
        Some("pattern") => json!({"kind": "PatternSecurityAnalyzer"}),
        Some("policy_rail") => json!({"kind": "PolicyRailSecurityAnalyzer"}),
        _ => Value::Null,
    }
}

fn secrets(request: &LaunchRequest) -> Map<String, Value> {
    let secret = |secret: &LaunchSecret| match secret {
        LaunchSecret::Value(value) => json!({"kind": "StaticSecret", "value": exposed(value)}),
        LaunchSecret::LookUp {
            url,
            headers,
            description,
        } => {
            let headers: Map<String, Value> = headers
                .iter()
                .map(|(name, value)| (name.clone(), exposed(value)))
                .collect();
            json!({"kind": "LookupSecret", "url": url, "headers": headers, "description": description})
        }
    };
    request
        .secrets
        .iter()
        .map(|(name, value)| (name.clone(), secret(value)))
        .collect()
}

/// Only tags that the agent server takes: one bad key would refuse the launch.
fn tags(request: &LaunchRequest) -> Map<String, Value> {
    let fits = |key: &str, value: &str| {
        !key.is_empty()
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && value.chars().count() <= MAX_TAG
    };
    request
        .tags
        .iter()
        .filter(|(key, value)| fits(key, value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}
