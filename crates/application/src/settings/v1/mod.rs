//! `POST /api/v1/settings` (a partial update), and the views of the V1 routes.
//!
//! `agent_settings_diff` and `conversation_settings_diff` are merged deeply; `mcp_config` in the former replaces the
//! stored one or changes single servers of it ([`McpConfigUpdate`]). Other known fields are validated and set, so nothing is stored that cannot be shown again. Unknown keys
//! are ignored. For a secret, `""` or null clears and the mask keeps the stored value.
//!
//! Another `agent_kind` shows the fields of the other variant. The sparse document keeps those of both, so that
//! switching back and forth loses nothing, in particular no key.

mod view;

use domain::agent::AgentKind;
use domain::id::OwnerId;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::agent_document::{AgentDocument, LLM, MASKED_LLM_OBJECTS};
use super::fields::{CONVERSATION, put, variant_title};
use super::issues::{Issue, IssueKind, MAX_DEPTH, alternatives, depth, nul_issue};
use super::marketplaces;
use super::mcp::{
    first_server_with_credentials, merge_servers, unmask_opaque, with_masks_restored,
};
use super::model::Settings;
use super::service::{SettingsService, UpdateError};

pub use view::{agent_schema, conversation_schema};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum V1Refusal {
    /// The request contains these whole documents instead of differences.
    LegacyKeys(Vec<&'static str>),
    /// Values are invalid; the text names them and quotes none.
    Invalid(String),
}

/// What an `mcp_config` in a request means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpConfigUpdate {
    /// The whole configuration.
    Replace,
    /// The servers that change; `null` removes one.
    Merge,
}

/// Title of a validation error about the request itself.
const SETTINGS_TITLE: &str = "Settings";
/// Plain fields that these routes neither show nor change.
const LEGACY_ONLY_FIELDS: [&str; 1] = ["enable_solvability_analysis"];

impl SettingsService {
    pub async fn update_v1(
        &self,
        owner: &OwnerId,
        body: &Map<String, Value>,
        mcp: McpConfigUpdate,
    ) -> Result<(), UpdateError<V1Refusal>> {
        let saved = self.update(owner, |settings| {
            let mut settings = merge(settings, body, mcp)?;
            settings.reconcile_profiles();
            Ok(settings)
        });
        saved.await.map(|_| ())
    }
}

fn merge(
    mut settings: Settings,
    body: &Map<String, Value>,
    mcp: McpConfigUpdate,
) -> Result<Settings, V1Refusal> {
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
    let mut all = body.iter();
    if let Some(issue) = all.find_map(|(key, value)| nul_issue(&[], key, value)) {
        let text = format_issues(SETTINGS_TITLE, &[issue]);
        return Err(V1Refusal::Invalid(text.unwrap_or_default()));
    }
    let mut texts = Vec::new();
    texts.extend(merge_diff(body, "agent_settings_diff", |diff| {
        let issues = settings.agent.merge(diff, mcp);
        (variant_title(settings.agent.kind()), issues)
    }));
    texts.extend(merge_diff(body, "conversation_settings_diff", |diff| {
        let overlay = &mut settings.conversation;
        let issues = CONVERSATION.merge(overlay, diff, &mut |_, _| Ok(()));
        ("ConversationSettings", issues)
    }));
    let mut issues = Vec::new();
    let plain = body
        .iter()
        .filter(|(key, _)| !LEGACY_ONLY_FIELDS.contains(&key.as_str()));
    for (key, value) in plain {
        let set = settings.set_plain(key, value);
        issues.extend(set.err().map(|kind| Issue::at(&[key], kind)));
    }
    texts.extend(format_issues(SETTINGS_TITLE, &issues));
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

/// Merges a difference to one of the documents, if there is one. `merge` returns the document's title and the issues.
fn merge_diff(
    body: &Map<String, Value>,
    key: &str,
    merge: impl FnOnce(&Map<String, Value>) -> (&'static str, Vec<Issue>),
) -> Option<String> {
    match body.get(key)? {
        Value::Null => None,
        Value::Object(diff) => {
            let (title, issues) = merge(diff);
            format_issues(title, &issues)
        }
        _ => format_issues(SETTINGS_TITLE, &[Issue::at(&[key], IssueKind::Object)]),
    }
}

/// Formats issues as clients of the reference show them.
fn format_issues(title: &str, issues: &[Issue]) -> Option<String> {
    use std::fmt::Write;
    let plural = if issues.len() == 1 { "" } else { "s" };
    let mut text = format!("{} validation error{plural} for {title}", issues.len());
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

impl AgentDocument {
    fn merge(&mut self, diff: &Map<String, Value>, mcp: McpConfigUpdate) -> Vec<Issue> {
        let mut issues = Vec::new();
        let mut diff = diff.clone();
        if let Some(kind) = diff.shift_remove("agent_kind") {
            let kind = kind.as_str();
            // An older name of the same variant.
            let kind = kind.map(|name| if name == "llm" { "openhands" } else { name });
            if let Some(kind) = kind.and_then(|name| name.parse::<AgentKind>().ok()) {
                put(&mut self.overlay, "agent_kind", Some(kind.as_str().into()));
            } else {
                let names = alternatives(&["openhands", "llm", "acp"]);
                let issue = IssueKind::Other(format!("agent_kind must be {names}"));
                issues.push(Issue::at(&["agent_kind"], issue));
            }
        }
        match diff.shift_remove("mcp_config") {
            None => {}
            Some(Value::Null) => self.mcp = None,
            Some(new @ Value::Object(_)) => issues.extend(self.update_mcp(new, mcp).err()),
            Some(_) => issues.push(Issue::at(&["mcp_config"], IssueKind::Object)),
        }
        if let Some(Value::Object(llm)) = diff.get_mut(LLM) {
            for key in MASKED_LLM_OBJECTS {
                if let Some(value) = llm.get_mut(key) {
                    // Without masks, the merge over the stored value keeps its secrets.
                    *value = with_masks_restored(value.take(), None);
                }
            }
        }
        issues.extend(self.merge_fields(&diff, false));
        issues
    }

    fn update_mcp(&mut self, new: Value, update: McpConfigUpdate) -> Result<(), Issue> {
        if let Some(name) = first_server_with_credentials(&new) {
            return Err(Issue::at(
                &["mcp_config", name, "url"],
                IssueKind::Other("URL cannot contain a user name or password".into()),
            ));
        }
        let stored = self.mcp_document();
        let new = match update {
            McpConfigUpdate::Replace => new,
            McpConfigUpdate::Merge => merge_servers(stored.clone(), &new),
        };
        let new = unmask_opaque(new, stored.as_ref());
        let empty = new.as_object().is_none_or(Map::is_empty);
        self.mcp = (!empty).then(|| SecretString::from(new.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
