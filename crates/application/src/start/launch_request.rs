//! Builds the launch request for the agent server from the task and its owner's settings.

use crate::models::SpendingConversation;
use domain::agent::spending::NanoUsd;
use std::collections::BTreeMap;
use std::sync::Arc;

use domain::agent::{AgentKind, LaunchRequest, LaunchSecret, Plugin};
use domain::conversation::MessageInput;
use domain::encryption::cipher::Cipher;
use domain::error::{Classify, ErrorClass, chain};
use domain::sandbox::Sandbox;
use domain::start_task::{AgentType, StartRequest, StartTask};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use url::Url;

use super::prepare::PreparedWorkspace;
use super::request_checks::wants_auto_title;
use super::working_dir::plan_path;
use crate::models::ModelAccess;
use crate::secrets::{ProviderTokens, SecretsService};
use crate::settings::LaunchProfile;
use crate::{AppError, Policy, Ports, pull_requests};

/// Notes about secrets that cannot be opened, and names in the note about secrets that the agent can read.
const MAX_SECRET_NOTES: usize = 10;

/// Kinds of secrets that the agent can read, each with the reason.
const EXPOSED_SECRETS: (&str, &str) = ("secrets", "they have no hosts");
const SECRETS_WITH_HOSTS: (&str, &str) = (
    "secrets with hosts",
    "only sandboxes with the service's forward proxy keep them outside",
);

/// Tag with the program of an ACP agent (`docs/reference/wire/conversations.md`).
const ACP_SERVER_TAG: &str = "acpserver";

/// Instructions for a planning agent, which would otherwise offer what it cannot do.
const PLANNING: &str = "<IMPORTANT_PLANNING_BOUNDARIES>\n\
    You make plans; you cannot run commands or change the project. When the plan in PLAN.md is complete, do not offer to \
    carry it out and do not ask whether to proceed. Tell the user that the plan can be handed to the coding agent: with \
    the Build button below its preview, or by switching to the coding agent and asking it to carry out the plan.\n\
    </IMPORTANT_PLANNING_BOUNDARIES>";

/// Builds launch requests.
pub(super) struct LaunchBuilder {
    secrets: SecretsService,
    models: ModelAccess,
    cipher: Arc<dyn Cipher>,
    webhook_url: Url,
    mcp_in_conversations: bool,
}

impl LaunchBuilder {
    pub(super) fn new(
        secrets: SecretsService,
        models: ModelAccess,
        ports: &Ports,
        policy: &Policy,
    ) -> Self {
        Self {
            secrets,
            models,
            cipher: Arc::clone(&ports.cipher),
            webhook_url: policy.webhook_url.clone(),
            mcp_in_conversations: policy.mcp_in_conversations && policy.git.allows_pushes(),
        }
    }

    /// Builds the request, and notes about missing parts.
    pub(super) async fn build(
        &self,
        task: &StartTask,
        profile: LaunchProfile,
        tokens: &ProviderTokens,
        sandbox: &Sandbox,
        prepared: PreparedWorkspace,
    ) -> Result<(LaunchRequest, Vec<String>), AppError> {
        let requested = &task.request;
        let is_planning = requested.agent_type == AgentType::Plan && profile.acp.is_none();
        // A planning agent opens no pull requests.
        let mcp_server = if is_planning || !self.mcp_in_conversations {
            None
        } else {
            let (url, id) = (&self.webhook_url, task.conversation_id);
            pull_requests::mcp_server(&*self.cipher, url, &profile, sandbox, id)?
        };
        let spends = Some(spending(task, &profile));
        let acp = profile.acp;
        let (secrets, mut notes) = self
            .all_secrets(
                task,
                sandbox,
                tokens,
                acp.is_some(),
                profile.secret_names.as_deref(),
            )
            .await?;
        let mcp = self.secrets.without_keys(sandbox, profile.mcp)?;
        let placed = self.models.for_sandbox(&sandbox.id, spends, profile.llm);
        let (llm, note) = placed.await?;
        notes.extend(note);
        let tags = acp
            .iter()
            .map(|acp| (ACP_SERVER_TAG.to_owned(), acp.server.clone()));
        let request = LaunchRequest {
            conversation_id: task.conversation_id,
            plan_path: is_planning
                .then(|| plan_path(&prepared.working_dir, requested.git_provider)),
            working_dir: prepared.working_dir,
            llm,
            condenser: profile.condenser,
            max_iterations: profile.max_iterations,
            confirmation_mode: profile.confirmation_mode,
            security_analyzer: profile.security_analyzer,
            mcp: mcp.into_iter().chain(mcp_server).collect(),
            search_api_key: profile.search_api_key,
            system_message_suffix: joined([
                is_planning.then(|| PLANNING.to_owned()),
                profile.system_message_suffix,
                requested.system_message_suffix.clone(),
            ]),
            initial_message: first_message(requested),
            secrets,
            auto_title: wants_auto_title(requested),
            title_profile: profile.title_profile,
            agent_type: requested.agent_type,
            tools: profile.tools,
            sub_agents: profile.sub_agents,
            tags: tags.collect(),
            acp,
            plugins: plugins(requested),
            hooks: prepared.hooks,
            disabled_skills: profile.disabled_skills,
            max_budget: profile.max_budget_per_task,
        };
        Ok((request, notes))
    }

    /// The user's secrets, overridden by those of the request. The agent server looks up the user's secrets when needed,
    /// so that a change reaches a running sandbox. An ACP agent gets values: it receives all of them at its start, and the
    /// agent server would silently leave out failed look-ups, so that an agent may lack the key of its model.
    async fn all_secrets(
        &self,
        task: &StartTask,
        sandbox: &Sandbox,
        tokens: &ProviderTokens,
        by_value: bool,
        allowed: Option<&[String]>,
    ) -> Result<(BTreeMap<String, LaunchSecret>, Vec<String>), AppError> {
        let (mut secrets, mut notes) = (BTreeMap::new(), Vec::new());
        let is_allowed = |name: &String| allowed.is_none_or(|names| names.contains(name));
        let (listed, readable) = self.secrets.launch_secrets(sandbox, tokens).await?;
        for (mut names, kind) in [
            (readable.exposed, EXPOSED_SECRETS),
            (readable.with_hosts, SECRETS_WITH_HOSTS),
        ] {
            names.retain(is_allowed);
            notes.extend(readable_note(&names, kind));
        }
        for (name, look_up) in listed {
            if !is_allowed(&name) {
                continue;
            }
            if !by_value {
                secrets.insert(name, look_up);
                continue;
            }
            match self.secrets.reveal_with(sandbox, &name, Some(tokens)).await {
                Ok(value) => {
                    secrets.insert(name, LaunchSecret::Value(value));
                }
                // The secret was deleted in between.
                Err(error) if error.class() == ErrorClass::NotFound => {}
                Err(AppError::Cipher(error)) => {
                    tracing::warn!(error = %chain(&error), "cannot open a secret; the agent starts without it");
                    if notes.len() < MAX_SECRET_NOTES {
                        notes.push(format!(
                            "The secret {name} cannot be opened and was left out. Store it again."
                        ));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let own = self.open_secrets(task)?.into_iter();
        secrets.extend(own.map(|(name, value)| (name, LaunchSecret::Value(value))));
        Ok((secrets, notes))
    }

    fn open_secrets(&self, task: &StartTask) -> Result<BTreeMap<String, SecretString>, AppError> {
        let Some(sealed) = &task.sealed_secrets else {
            return Ok(BTreeMap::new());
        };
        let plain = self
            .cipher
            .open(&StartTask::secrets_context(task.id), sealed)?;
        let map: BTreeMap<String, String> = serde_json::from_str(plain.expose_secret())
            .map_err(|_| domain::encryption::cipher::CipherError::Damaged)?;
        Ok(map
            .into_iter()
            .map(|(name, value)| (name, SecretString::from(value)))
            .collect())
    }
}

/// Says that the agent can read these secrets, and why.
fn readable_note(names: &[String], (kind, reason): (&str, &str)) -> Option<String> {
    let shown = names.get(..MAX_SECRET_NOTES).unwrap_or(names);
    (!names.is_empty()).then(|| {
        format!(
            "The agent can read {} of your {kind} ({}), because {reason}.",
            names.len(),
            shown.join(", ")
        )
    })
}

/// What the conversation's row shows of its agent (`docs/reference/wire/conversations.md`).
pub(super) struct AgentSummary {
    pub(super) agent_kind: AgentKind,
    pub(super) llm_model: Option<String>,
    pub(super) tags: BTreeMap<String, String>,
}

pub(super) fn agent_summary(request: &LaunchRequest) -> AgentSummary {
    let (agent_kind, llm_model) = match &request.acp {
        Some(acp) => (AgentKind::Acp, acp.model.clone()),
        None => (AgentKind::OpenHands, Some(request.llm.model.clone())),
    };
    AgentSummary {
        agent_kind,
        llm_model,
        tags: request.tags.clone(),
    }
}

/// What the model calls of the conversation are counted for.
fn spending(task: &StartTask, profile: &LaunchProfile) -> SpendingConversation {
    SpendingConversation {
        id: task.conversation_id,
        budget: profile.max_budget_per_task.and_then(NanoUsd::from_dollars),
    }
}

fn joined(texts: [Option<String>; 3]) -> Option<String> {
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// The plugins of the request, which were validated on arrival.
fn plugins(request: &StartRequest) -> Vec<Plugin> {
    let plugins = request.plugins.iter().flatten();
    plugins
        .filter_map(|plugin| serde_json::from_value(plugin.clone()).ok())
        .collect()
}

/// The first message, with the parameters of plugins as text: agent servers do not take such parameters.
pub(super) fn first_message(request: &StartRequest) -> Option<MessageInput> {
    let parameters = parameters(&plugins(request));
    let Some(parameters) = parameters else {
        return request.initial_message.clone();
    };
    let part = json!({"type": "text", "text": parameters});
    let mut message = request.initial_message.clone().unwrap_or(MessageInput {
        role: "user".to_owned(),
        content: Vec::new(),
        run: true,
    });
    message.content.push(part);
    Some(message)
}

fn parameters(plugins: &[Plugin]) -> Option<String> {
    let mut lines = Vec::new();
    for plugin in plugins {
        let none = Map::new();
        let given = plugin.parameters.as_ref().unwrap_or(&none);
        if !given.is_empty() {
            lines.push(format!("{}:", plugin_name(plugin)));
        }
        for (name, value) in given {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            lines.push(format!("- {name}: {value}"));
        }
    }
    (!lines.is_empty()).then(|| format!("Plugin Configuration Parameters:\n{}", lines.join("\n")))
}

fn plugin_name(plugin: &Plugin) -> &str {
    let path = plugin.repo_path.as_deref().unwrap_or(&plugin.source);
    let path = path.trim_end_matches('/');
    path.rsplit(['/', ':', '@']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_has_the_parameters_of_plugins() {
        let plugin = |parameters: Value| json!({"source": "github:o/r", "ref": null, "repo_path": "plugins/fine", "parameters": parameters});
        let mut request = StartRequest {
            plugins: Some(vec![
                plugin(json!({"city": "Bern", "days": 3})),
                plugin(Value::Null),
            ]),
            ..StartRequest::default()
        };
        let alone = first_message(&request).expect("the parameters are a message");
        let text = "Plugin Configuration Parameters:\nfine:\n- city: Bern\n- days: 3";
        assert_eq!(alone.content, [json!({"type": "text", "text": text})]);
        assert!(alone.run);

        let hello = json!({"type": "text", "text": "hello"});
        request.initial_message = Some(MessageInput {
            role: "user".to_owned(),
            content: vec![hello.clone()],
            run: true,
        });
        let both = first_message(&request).expect("a message");
        assert_eq!(both.content.len(), 2);
        assert_eq!(both.content[0], hello);

        request.plugins = Some(vec![plugin(json!({}))]);
        assert_eq!(first_message(&request), request.initial_message);
        assert_eq!(plugins(&request).len(), 1);
    }
}
