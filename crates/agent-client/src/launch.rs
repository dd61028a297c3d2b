//! The body of `POST /api/conversations`, with fields that all supported releases accept.

use std::fmt::Write as _;

use domain::agent::{
    AcpAgent, AgentKind, AgentTool, CondenserConfig, LaunchRequest, LaunchSecret, LlmConfig,
    LlmProfile, Plugin,
};
use domain::conversation::MessageInput;
use domain::start_task::AgentType;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::mcp::McpEntry;
use crate::plugins;
use crate::server_info::ServerInfo;

/// Hexadecimal digits of the digest in a profile's name.
const PROFILE_DIGEST_CHARS: usize = 12;
/// Longest value of a tag that the agent server accepts.
const MAX_TAG_CHARS: usize = 256;

/// The structure of a plan, for the planning prompt. These are the sections of the document that the agent server's planning
/// tool begins with.
const PLAN_STRUCTURE: &str = "The plan has exactly these sections, in this order:\n\n\
    1. OBJECTIVE: what is to be achieved, and the problem in operational terms.\n\
    2. CONTEXT SUMMARY: the files, components and data that matter, dependencies and constraints.\n\
    3. APPROACH OVERVIEW: the way that was chosen, and why not another.\n\
    4. IMPLEMENTATION STEPS: one after the other, each with its goal, how it is done, and where.\n\
    5. TESTING AND VALIDATION: how to see that it works.";

fn exposed(secret: &SecretString) -> Value {
    Value::String(secret.expose_secret().to_owned())
}

/// Builds the whole body, and notes for the user about deviations from the request. `mcp` and `plugins` are those that passed
/// their tests. The body contains plain keys, which the protocol requires: never log it.
pub(crate) fn body(
    request: &LaunchRequest,
    server: &ServerInfo,
    mcp: &[McpEntry],
    plugins: &[&Plugin],
) -> (Value, Vec<String>) {
    let mut notes = Vec::new();
    let mut body = json!({
        "conversation_id": request.conversation_id.dashed(),
        "workspace": {"kind": "LocalWorkspace", "working_dir": request.working_dir},
        "confirmation_policy": {"kind": confirmation(request)},
        "security_analyzer": analyzer(request.security_analyzer.as_deref()),
        "autotitle": request.auto_title,
        "tags": tags(request),
        "secrets": secrets(request),
    });
    match &request.acp {
        // Settings instead of an agent: the agent server knows the ACP programs that it can run, and their versions.
        Some(acp) => body["agent_settings"] = acp_settings(acp, request, mcp),
        None => body["agent"] = agent(request, server, mcp, &mut notes),
    }
    if let Some(profile) = &request.title_profile {
        body["title_llm_profile"] = json!(profile);
    }
    if let Some(max) = request.max_iterations {
        body["max_iterations"] = json!(max.max(1));
    }
    if let Some(first) = &request.initial_message {
        body["initial_message"] = message(first);
    }
    if !plugins.is_empty() {
        body["plugins"] = plugins
            .iter()
            .map(|plugin| plugins::document(plugin))
            .collect();
    }
    if let Some(hooks) = &request.hooks {
        body["hook_config"] = hooks.clone();
    }
    (body, notes)
}

/// The document of a message: the body of `POST …/events`, or the first message of a launch.
pub(crate) fn message(message: &MessageInput) -> Value {
    json!({"role": message.role, "content": message.content, "run": message.run})
}

fn mcp_config(mcp: &[McpEntry]) -> Map<String, Value> {
    mcp.iter()
        .map(|entry| (entry.name.clone(), entry.document.clone()))
        .collect()
}

/// Turns off skills of the home directory, which belongs to the sandbox, and public skills, which the agent server would fetch
/// from the network before its first response.
fn agent_context(request: &LaunchRequest) -> Value {
    let mut context = json!({
        "system_message_suffix": request.system_message_suffix,
        "load_user_skills": false,
        "load_public_skills": false,
        "load_project_skills": true,
    });
    if !request.disabled_skills.is_empty() {
        context["disabled_skills"] = json!(request.disabled_skills);
    }
    context
}

fn agent(
    request: &LaunchRequest,
    server: &ServerInfo,
    mcp: &[McpEntry],
    notes: &mut Vec<String>,
) -> Value {
    let mut agent = json!({
        "kind": "Agent",
        "llm": llm(&request.llm, "agent", server.hides_stream_fragments()),
        "tools": tools(request, server, notes),
        "mcp_config": mcp_config(mcp),
        "agent_context": agent_context(request),
        // There is no interactive terminal.
        "system_prompt_kwargs": {"cli_mode": false},
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

/// The settings of an ACP agent: a program that is the agent. They contain no model key, because the program takes keys from
/// the conversation's secrets (`ANTHROPIC_API_KEY`, ...). Its data stays with the conversation, so that it finds its session
/// again after a pause.
fn acp_settings(acp: &AcpAgent, request: &LaunchRequest, mcp: &[McpEntry]) -> Value {
    let mut settings = acp.options.clone();
    settings.extend(Map::from_iter([
        ("agent_kind".to_owned(), json!(AgentKind::Acp)),
        ("acp_server".to_owned(), json!(acp.server)),
        ("acp_command".to_owned(), json!(acp.command)),
        ("acp_args".to_owned(), json!(acp.args)),
        ("acp_model".to_owned(), json!(acp.model)),
        ("acp_session_mode".to_owned(), json!(acp.session_mode)),
        ("acp_isolate_data_dir".to_owned(), json!(true)),
        ("mcp_config".to_owned(), json!(mcp_config(mcp))),
        ("agent_context".to_owned(), agent_context(request)),
    ]));
    if let Some(seconds) = acp.prompt_timeout {
        settings.insert("acp_prompt_timeout".to_owned(), json!(seconds));
    }
    Value::Object(settings)
}

/// The document of a model. `default_stream` is the value of `stream` unless the user sets one.
pub(crate) fn llm(config: &LlmConfig, usage: &str, default_stream: bool) -> Value {
    let mut llm = config.options.clone();
    llm.entry("stream").or_insert(json!(default_stream));
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

/// The agent server accepts a tool that it cannot serve, and the first run fails. So the list includes optional tools only if
/// the server offers them, and omits tools of the user's choice that it does not offer.
fn tools(request: &LaunchRequest, server: &ServerInfo, notes: &mut Vec<String>) -> Value {
    let (basic, optional): (&[&str], &[&str]) = match request.agent_type {
        AgentType::Plan => return planning_tools(request),
        AgentType::Default if request.sub_agents => {
            (BASIC_TOOLS, &["browser_tool_set", "task_tool_set"])
        }
        AgentType::Default => (BASIC_TOOLS, &["browser_tool_set"]),
    };
    let Some(chosen) = &request.tools else {
        let offered = optional.iter().filter(|name| server.has_tool(name));
        return basic
            .iter()
            .chain(offered)
            .map(|name| json!({"name": name}))
            .collect();
    };
    // An agent server without a list of tools counts as having all.
    let offers = |tool: &&AgentTool| server.usable_tools.is_empty() || server.has_tool(&tool.name);
    let (offered, missing): (Vec<_>, Vec<_>) = chosen.iter().partition(offers);
    notes.extend(missing.iter().map(|tool| {
        let name: String = tool
            .name
            .chars()
            .filter(|c| !c.is_control())
            .take(60)
            .collect();
        format!("Tool {name} was left out: the agent server does not have it.")
    }));
    offered
        .into_iter()
        .map(|tool| json!({"name": tool.name, "params": tool.params}))
        .collect()
}

const BASIC_TOOLS: &[&str] = &["terminal", "file_editor", "task_tracker"];

fn planning_tools(request: &LaunchRequest) -> Value {
    let mut editor = json!({"name": "planning_file_editor"});
    if let Some(path) = &request.plan_path {
        editor["params"] = json!({"plan_path": path});
    }
    json!([{"name": "glob"}, {"name": "grep"}, editor])
}

fn confirmation(request: &LaunchRequest) -> &'static str {
    match (
        request.confirmation_mode,
        request.security_analyzer.as_deref(),
    ) {
        (false, _) => "NeverConfirm",
        // Only with this analyzer the model states the risk of an action.
        (true, Some("llm")) => "ConfirmRisky",
        (true, _) => "AlwaysConfirm",
    }
}

/// Omits an analyzer that the agent server does not have, because it would refuse the launch. A confirmation policy works
/// without an analyzer.
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

/// Omits tags that the agent server does not accept, because one of them would fail the launch. Keys are lower-case letters and
/// digits.
fn tags(request: &LaunchRequest) -> Map<String, Value> {
    let is_valid = |key: &str, value: &str| {
        !key.is_empty()
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && value.chars().count() <= MAX_TAG_CHARS
    };
    request
        .tags
        .iter()
        .filter(|(key, value)| is_valid(key, value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}

/// The document of a model, with a `usage_id` that contains a digest of the document. The agent server (1.34) keeps the first
/// configuration under a `usage_id`, and its costs, so a changed configuration needs another one. Reports contain the
/// `usage_id`; the digest includes the sandbox's key, so that a reader without that key cannot guess a model key from it.
pub(crate) fn llm_with_digest(
    profile: &LlmProfile,
    key: &SecretString,
    is_streaming: bool,
) -> Value {
    let usage = format!("profile:{}", profile.name);
    let mut document = llm(&profile.llm, &usage, is_streaming);
    let mut hash = Sha256::new();
    hash.update(key.expose_secret());
    hash.update([0]);
    hash.update(document.to_string());
    let mut digest = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    document["usage_id"] = format!("{usage}:{}", &digest[..PROFILE_DIGEST_CHARS]).into();
    document
}
