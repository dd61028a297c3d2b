//! What a start needs from the settings.

mod acp;
mod language_model;

use std::collections::BTreeMap;

use domain::agent::{AcpAgent, AgentTool, CondenserConfig, LlmConfig, McpServer};
use domain::git::GitProvider;
use secrecy::SecretString;
use serde_json::Value;

use super::fields::texts_of;
use super::mcp;
use super::model::Settings;
use crate::AppError;

pub use language_model::MissingSettings;
pub(super) use language_model::language_model;

/// The parts of [`domain::agent::LaunchRequest`] that come from the user's settings.
#[derive(Debug, Clone)]
pub struct LaunchProfile {
    /// Model with the user's options. With [`LaunchProfile::acp`] only its name is used.
    pub llm: LlmConfig,
    pub acp: Option<AcpAgent>,
    /// The user's tools; `None` for the usual ones.
    pub tools: Option<Vec<AgentTool>>,
    /// Whether the agent may delegate tasks to sub-agents.
    pub sub_agents: bool,
    /// Condenser; `None` if switched off.
    pub condenser: Option<CondenserConfig>,
    /// Whether the agent asks before risky actions.
    pub confirmation_mode: bool,
    /// `llm`, or none.
    pub security_analyzer: Option<String>,
    pub max_iterations: Option<u32>,
    /// Budget of the conversation in US dollars.
    pub max_budget_per_task: Option<f64>,
    /// MCP servers of both forms.
    pub mcp: Vec<McpServer>,
    pub search_api_key: Option<SecretString>,
    /// Git tokens as environment secrets: `GITHUB_TOKEN`, `GITLAB_TOKEN`, …
    pub secrets: BTreeMap<String, SecretString>,
    /// The only secrets and git tokens that the agent may use; `None` for all.
    pub secret_names: Option<Vec<String>>,
    /// Hosts of git providers other than their own, as the user wrote them.
    pub git_hosts: BTreeMap<GitProvider, String>,
    pub git_user_name: Option<String>,
    pub git_user_email: Option<String>,
    /// Whether repositories are cloned with the whole history.
    pub git_full_clone: bool,
    /// Spec for a new sandbox, if the user prefers one.
    pub default_sandbox_spec_id: Option<String>,
    pub disabled_skills: Vec<String>,
    /// The profile whose model writes titles.
    pub title_profile: Option<String>,
    /// The user's addition to the system prompt.
    pub system_message_suffix: Option<String>,
    /// Notes about settings that could not be used.
    pub notes: Vec<String>,
}

pub fn token_name(provider: GitProvider) -> String {
    format!("{}_TOKEN", provider.as_str().to_ascii_uppercase())
}

/// Longest git author name or address in characters.
const MAX_GIT_IDENTITY_CHARS: usize = 255;
impl Settings {
    /// The MCP servers of both forms, and notes about unusable ones.
    pub(crate) fn mcp_servers(&self) -> (Vec<McpServer>, Vec<String>) {
        let opaque = self.agent.mcp_document();
        mcp::for_agent(self.mcp.as_ref(), opaque.as_ref())
    }

    /// What a start with these settings uses, with another model if one is named.
    pub(crate) fn launch_profile(&self, model: Option<&str>) -> Result<LaunchProfile, AppError> {
        profile(self, model).map_err(|needs| AppError::invalid(needs.0))
    }

    /// Whether a start with these settings has a model that it can use.
    pub fn has_usable_model(&self) -> bool {
        let applied = self.clone().apply_agent_profile(None);
        applied.is_ok_and(|(settings, _)| profile(&settings, None).is_ok())
    }
}

pub(super) fn profile(
    settings: &Settings,
    model_override: Option<&str>,
) -> Result<LaunchProfile, MissingSettings> {
    let mut notes = Vec::new();
    let acp = acp::agent(settings)?;
    let llm = match &acp {
        Some(agent) => {
            notes.extend(acp::note(agent, model_override));
            acp::no_model(agent)
        }
        None => language_model(settings, model_override)?,
    };
    let (mcp, mcp_notes) = settings.mcp_servers();
    notes.extend(mcp_notes);
    let analyzer = settings.conversation_effective("security_analyzer");
    let max_iterations = settings.conversation_effective("max_iterations").as_u64();
    Ok(LaunchProfile {
        llm,
        acp,
        tools: tools(settings),
        sub_agents: settings.agent.effective("enable_sub_agents") == true,
        condenser: condenser(settings),
        confirmation_mode: settings.conversation_effective("confirmation_mode") == true,
        security_analyzer: analyzer
            .as_str()
            .filter(|a| *a != "none")
            .map(str::to_owned),
        max_iterations: max_iterations.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        max_budget_per_task: settings.max_budget_per_task.filter(|b| *b > 0.0),
        mcp,
        search_api_key: settings.search_api_key.clone(),
        secrets: settings
            .provider_tokens
            .iter()
            .map(|(provider, t)| (token_name(*provider), t.token.clone()))
            .collect(),
        secret_names: None,
        git_hosts: settings
            .provider_tokens
            .iter()
            .filter_map(|(provider, t)| Some((*provider, t.host.clone()?)))
            .collect(),
        git_user_name: identity("git_user_name", settings.git_user_name.as_ref(), &mut notes),
        git_user_email: identity(
            "git_user_email",
            settings.git_user_email.as_ref(),
            &mut notes,
        ),
        git_full_clone: settings.git_full_clone,
        default_sandbox_spec_id: filled(settings.default_sandbox_spec_id.as_ref()),
        disabled_skills: disabled_skills(settings),
        title_profile: settings.usable_title_profile(),
        system_message_suffix: settings
            .agent
            .text("agent_context.system_message_suffix")
            .map(str::to_owned),
        notes,
    })
}

/// A skill is off if either list names it.
fn disabled_skills(settings: &Settings) -> Vec<String> {
    let mut names = settings.disabled_skills.clone().unwrap_or_default();
    let more = settings.agent.effective("agent_context.disabled_skills");
    for name in texts_of(Some(&more)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Tools are names, or objects with `name` and `params`. Unreadable ones are skipped.
fn tools(settings: &Settings) -> Option<Vec<AgentTool>> {
    let value = settings.agent.effective("tools");
    let read = |tool: &Value| {
        let name = tool.as_str().or_else(|| tool.get("name")?.as_str())?;
        Some(AgentTool {
            name: name.to_owned(),
            params: tool
                .get("params")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
        })
    };
    Some(value.as_array()?.iter().filter_map(read).collect())
}

/// Git author values go into a command line, which limits their length.
fn identity(name: &str, text: Option<&String>, notes: &mut Vec<String>) -> Option<String> {
    let text = filled(text)?;
    if text.chars().count() > MAX_GIT_IDENTITY_CHARS {
        notes.push(format!(
            "{name} is longer than {MAX_GIT_IDENTITY_CHARS} characters and was left out."
        ));
        return None;
    }
    Some(text)
}

fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|t| !t.trim().is_empty()).cloned()
}

fn condenser(settings: &Settings) -> Option<CondenserConfig> {
    let value = |name: &str| settings.agent.effective(&format!("condenser.{name}"));
    if value("enabled") != true || value("condenser_kind") == "no_op" {
        return None;
    }
    let number = |name: &str| {
        value(name)
            .as_u64()
            .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    };
    let max_size = number("max_size");
    // The agent refuses to keep half of the window or more.
    let keep_first = number("keep_first").min((max_size / 2).saturating_sub(1));
    Some(CondenserConfig {
        max_size,
        keep_first,
    })
}

#[cfg(test)]
mod tests;
