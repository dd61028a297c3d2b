//! ACP agents: external programs that act as the agent.

use domain::agent::{AcpAgent, AgentKind, LlmConfig};
use serde_json::{Map, Value};

use super::language_model::{MissingSettings, short};
use crate::settings::fields;
use crate::settings::model::Settings;

const DEFAULT_SERVER: &str = "claude-code";
/// The server whose command the user sets.
const CUSTOM: &str = "custom";
/// Fields that the agent fills in if they are not sent.
const OPTIONS: [&str; 1] = ["acp_file_secrets"];

/// The ACP agent, if the settings select one.
pub(super) fn agent(settings: &Settings) -> Result<Option<AcpAgent>, MissingSettings> {
    let document = &settings.agent;
    if document.kind() != AgentKind::Acp {
        return Ok(None);
    }
    let server = document.text("acp_server").unwrap_or(DEFAULT_SERVER);
    let command = strings(settings, "acp_command");
    if server == CUSTOM && command.is_empty() {
        return Err(MissingSettings(
            "The ACP agent has no command. Set acp_command in the settings, or choose a known acp_server.".to_owned(),
        ));
    }
    let timeout = document.effective("acp_prompt_timeout").as_f64();
    Ok(Some(AcpAgent {
        server: server.to_owned(),
        command,
        args: strings(settings, "acp_args"),
        model: document.text("acp_model").map(str::to_owned),
        session_mode: document.text("acp_session_mode").map(str::to_owned),
        prompt_timeout: timeout.filter(|seconds| *seconds > 0.0),
        options: OPTIONS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), own_value(settings, name)?)))
            .collect(),
    }))
}

/// A placeholder for the model: an ACP agent has its own, and does not get the key of the user's model.
pub(super) fn no_model(agent: &AcpAgent) -> LlmConfig {
    LlmConfig {
        model: agent.model.clone().unwrap_or_default(),
        base_url: None,
        api_key: None,
        options: Map::new(),
        secret_options: std::collections::BTreeMap::new(),
    }
}

/// A note if the request names a model, which an ACP agent cannot use.
pub(super) fn note(agent: &AcpAgent, model_override: Option<&str>) -> Option<String> {
    let asked = model_override.filter(|model| Some(*model) != agent.model.as_deref())?;
    Some(format!(
        "llm_model '{}' has no effect on an ACP agent: its model is acp_model in the settings.",
        short(asked)
    ))
}

fn own_value(settings: &Settings, key: &str) -> Option<Value> {
    let field = fields::AGENT.field(key)?;
    let value = fields::set_value(&settings.agent.overlay, field)?;
    field.coerce(value).ok()
}

fn strings(settings: &Settings, key: &str) -> Vec<String> {
    fields::texts_of(own_value(settings, key).as_ref())
}
