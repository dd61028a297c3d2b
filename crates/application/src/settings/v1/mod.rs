//! `POST /api/v1/settings` (a partial update), and the views of the V1 routes.
//!
//! `agent_settings_diff` and `conversation_settings_diff` are merged deeply; `mcp_config` in the former replaces the
//! stored one. Other known fields are validated and set, so nothing is stored that cannot be shown again. Unknown keys
//! are ignored. For a secret, `""` or null clears and the mask keeps.
//!
//! Another `agent_kind` shows the fields of the other variant. The sparse document keeps those of both, so that
//! switching back and forth loses nothing, in particular no key.

mod view;

use domain::id::UserId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::fields::{AGENT, CONVERSATION, boolean, integer, number, put};
use super::issues::{Issue, IssueKind, alternatives};
use super::marketplaces;
use super::mcp::{unmask_opaque, with_credentials, without_masks};
use super::model::{AgentDocument, GROUPINGS, LLM_API_KEY, SecretInput, Settings};
use super::{SettingsService, UpdateError};

pub use view::{SecretVisibility, agent_schema, conversation_schema};

/// Why a V1 save was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum V1Refusal {
    /// The request contains these whole documents instead of differences.
    LegacyKeys(Vec<&'static str>),
    /// Values are invalid; the text names them and quotes none.
    Invalid(String),
}

/// Deepest nesting of a request. Documents are parsed again, with a limit, inside other documents.
pub(super) const MAX_DEPTH: usize = 24;

impl SettingsService {
    /// Saves a V1 request.
    pub async fn store_v1(
        &self,
        owner: &UserId,
        body: &Map<String, Value>,
    ) -> Result<(), UpdateError<V1Refusal>> {
        let saved = self.update(owner, |settings| {
            let mut settings = merge(settings, body)?;
            settings.settle_profiles();
            Ok(settings)
        });
        saved.await.map(|_| ())
    }
}

fn merge(mut settings: Settings, body: &Map<String, Value>) -> Result<Settings, V1Refusal> {
    let legacy: Vec<&str> = ["agent_settings", "conversation_settings"]
        .into_iter()
        .filter(|key| body.contains_key(*key))
        .collect();
    if !legacy.is_empty() {
        return Err(V1Refusal::LegacyKeys(legacy));
    }
    if body.values().any(|value| depth(value) > MAX_DEPTH) {
        return Err(V1Refusal::Invalid(format!(
            "Nested more than {MAX_DEPTH} levels deep"
        )));
    }
    if let Some(at) = body.iter().find_map(|(key, value)| nul_in(key, value)) {
        let at: Vec<&str> = at.iter().map(String::as_str).rev().collect();
        let issue = Issue::at(&at, IssueKind::Other("Text cannot contain NUL".into()));
        return Err(V1Refusal::Invalid(
            summary("Settings", &[issue]).unwrap_or_default(),
        ));
    }
    let mut texts = Vec::new();
    match diff(body, "agent_settings_diff") {
        Ok(Some(diff)) => {
            let issues = settings.agent.merge(diff);
            let title = match settings.agent.variant() {
                "acp" => "ACPAgentSettings",
                _ => "OpenHandsAgentSettings",
            };
            texts.extend(summary(title, &issues));
        }
        Ok(None) => {}
        Err(issue) => texts.extend(summary("Settings", &[issue])),
    }
    match diff(body, "conversation_settings_diff") {
        Ok(Some(diff)) => {
            let issues = CONVERSATION.merge(&mut settings.conversation, diff, &mut |_, _| Ok(()));
            texts.extend(summary("ConversationSettings", &issues));
        }
        Ok(None) => {}
        Err(issue) => texts.extend(summary("Settings", &[issue])),
    }
    let mut issues = Vec::new();
    for (key, value) in body {
        if let Err(kind) = set_top_level(&mut settings, key, value) {
            issues.push(Issue::at(&[key], kind));
        }
    }
    texts.extend(summary("Settings", &issues));
    if let Some(list) = body.get("registered_marketplaces") {
        match marketplaces::normalise(list) {
            Ok(list) => settings.registered_marketplaces = list,
            Err(text) => texts.push(text),
        }
    }
    if texts.is_empty() {
        Ok(settings)
    } else {
        Err(V1Refusal::Invalid(texts.join("\n")))
    }
}

fn diff<'a>(
    body: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, Issue> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(Issue::at(&[key], IssueKind::Object)),
    }
}

/// Longest name that an error repeats.
const MAX_NAME_CHARS: usize = 100;

/// Path of a text with NUL, innermost name first. Such a text is lost or cut on the way to a process, and some stores
/// cannot store it.
pub(super) fn nul_in(key: &str, value: &Value) -> Option<Vec<String>> {
    let found = match value {
        _ if key.contains('\0') => Some(Vec::new()),
        Value::String(text) => text.contains('\0').then(Vec::new),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| nul_in(&index.to_string(), item))
        }
        Value::Object(map) => map.iter().find_map(|(key, item)| nul_in(key, item)),
        _ => None,
    };
    let name = key.chars().filter(|c| !c.is_control());
    let name: String = name.take(MAX_NAME_CHARS).collect();
    found.map(|mut at| {
        at.push(name);
        at
    })
}

pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Formats issues as clients of the reference show them.
fn summary(title: &str, issues: &[Issue]) -> Option<String> {
    use std::fmt::Write;
    let many = if issues.len() == 1 { "" } else { "s" };
    let mut text = format!("{} validation error{many} for {title}", issues.len());
    for issue in issues {
        let _ = write!(
            text,
            "\n{}\n  {} [type={}]",
            issue.at.join("."),
            issue.kind,
            issue.kind.code()
        );
    }
    (!issues.is_empty()).then_some(text)
}

fn set_top_level(s: &mut Settings, key: &str, value: &Value) -> Result<(), IssueKind> {
    match key {
        "language" => set_text(&mut s.language, value),
        "sandbox_base_container_image" => set_text(&mut s.sandbox_base_container_image, value),
        "sandbox_runtime_container_image" => {
            set_text(&mut s.sandbox_runtime_container_image, value)
        }
        "email" => set_text(&mut s.email, value),
        "git_user_name" => set_text(&mut s.git_user_name, value),
        "git_user_email" => set_text(&mut s.git_user_email, value),
        "default_sandbox_spec_id" => set_text(&mut s.default_sandbox_spec_id, value),
        "user_version" => set(&mut s.user_version, value, integer),
        "remote_runtime_resource_factor" => {
            set(&mut s.remote_runtime_resource_factor, value, integer)
        }
        "max_budget_per_task" => set(&mut s.max_budget_per_task, value, number),
        "user_consents_to_analytics" => set(&mut s.user_consents_to_analytics, value, boolean),
        "email_verified" => set(&mut s.email_verified, value, boolean),
        "disabled_skills" => set(&mut s.disabled_skills, value, strings),
        "search_api_key" => secret(value).map(|v| v.apply(&mut s.search_api_key)),
        "sandbox_api_key" => secret(value).map(|v| v.apply(&mut s.sandbox_api_key)),
        "enable_sound_notifications" => switch(&mut s.enable_sound_notifications, value),
        "enable_proactive_conversation_starters" => {
            switch(&mut s.enable_proactive_conversation_starters, value)
        }
        "git_full_clone" => switch(&mut s.git_full_clone, value),
        "sandbox_grouping_strategy" => {
            let known = value.as_str().filter(|v| GROUPINGS.contains(v));
            let one_of = || IssueKind::OneOf(GROUPINGS.map(str::to_owned).to_vec());
            known
                .ok_or_else(one_of)?
                .clone_into(&mut s.sandbox_grouping_strategy);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn set<T>(
    into: &mut Option<T>,
    value: &Value,
    read: impl FnOnce(&Value) -> Result<T, IssueKind>,
) -> Result<(), IssueKind> {
    *into = if value.is_null() {
        None
    } else {
        Some(read(value)?)
    };
    Ok(())
}

fn set_text(into: &mut Option<String>, value: &Value) -> Result<(), IssueKind> {
    set(into, value, |v| {
        v.as_str().map(str::to_owned).ok_or(IssueKind::String)
    })
}

fn switch(into: &mut bool, value: &Value) -> Result<(), IssueKind> {
    *into = boolean(value)?;
    Ok(())
}

fn strings(value: &Value) -> Result<Vec<String>, IssueKind> {
    let items = value.as_array().ok_or(IssueKind::List)?;
    items
        .iter()
        .map(|v| v.as_str().map(str::to_owned).ok_or(IssueKind::String))
        .collect()
}

pub(super) fn secret(value: &Value) -> Result<SecretInput, IssueKind> {
    match value {
        Value::Null => Ok(SecretInput::Clear),
        Value::String(text) => Ok(SecretInput::from_text(text)),
        _ => Err(IssueKind::String),
    }
}

impl AgentDocument {
    fn merge(&mut self, diff: &Map<String, Value>) -> Vec<Issue> {
        let mut issues = Vec::new();
        let mut diff = diff.clone();
        if let Some(kind) = diff.shift_remove("agent_kind") {
            // `llm` is an older name of the same variant.
            let variant = match kind.as_str() {
                Some("openhands" | "llm") => Some("openhands"),
                Some("acp") => Some("acp"),
                _ => None,
            };
            match variant {
                Some(_) => put(&mut self.overlay, "agent_kind", variant.map(Value::from)),
                None => issues.push(Issue::at(
                    &["agent_kind"],
                    IssueKind::Other(format!(
                        "agent_kind must be {}",
                        alternatives(&["openhands", "llm", "acp"])
                    )),
                )),
            }
        }
        match diff.shift_remove("mcp_config") {
            None => {}
            Some(Value::Null) => self.mcp = None,
            Some(new @ Value::Object(_)) => issues.extend(self.replace_mcp(new).err()),
            Some(_) => issues.push(Issue::at(&["mcp_config"], IssueKind::Object)),
        }
        if let Some(Value::Object(llm)) = diff.get_mut("llm") {
            for key in ["extra_headers", "litellm_extra_body"] {
                if let Some(value) = llm.get_mut(key) {
                    *value = without_masks(value.take());
                }
            }
        }
        let before = self.effective_model();
        let given = |key: &str| diff.get("llm").and_then(|llm| llm.get(key)).is_some();
        let url_given = given("base_url");
        let mut key_given = false;
        let Self {
            overlay,
            secrets: held,
            ..
        } = self;
        let found = AGENT.merge(overlay, &diff, &mut |field, value| {
            let input = secret(value)?;
            let pointer = field.pointer();
            key_given |= pointer == LLM_API_KEY && matches!(input, SecretInput::Set(_));
            let mut slot = held.remove(&pointer);
            input.apply(&mut slot);
            if let Some(secret) = slot {
                held.insert(pointer, secret);
            }
            Ok(())
        });
        issues.extend(found);
        self.settle_llm(&before, url_given, key_given);
        issues
    }

    fn replace_mcp(&mut self, new: Value) -> Result<(), Issue> {
        if let Some(name) = with_credentials(&new) {
            return Err(Issue::at(
                &["mcp_config", name, "url"],
                IssueKind::Other("URL cannot contain a user name or password".into()),
            ));
        }
        let old = self.mcp.as_ref();
        let old: Option<Value> = old.and_then(|t| serde_json::from_str(t.expose_secret()).ok());
        let new = unmask_opaque(new, old.as_ref());
        let empty = new.as_object().is_none_or(Map::is_empty);
        self.mcp = (!empty).then(|| SecretString::from(new.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
