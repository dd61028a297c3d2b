//! Views of the V1 routes.

use domain::clock::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::super::fields::{AGENT, CONVERSATION, SchemaSection, SettingsField};
use super::super::mcp::{masked_members, masked_opaque};
use super::super::model::{AgentDocument, MASK, Settings, exposed};
use super::super::profiles::Profile;

/// How secrets are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretVisibility {
    /// As null; separate flags show whether they are set.
    Hidden,
    /// As the mask.
    Masked,
    /// In clear: only for the owner's own running sandbox.
    Clear,
}

impl SecretVisibility {
    /// Shows a secret.
    pub fn show(self, secret: Option<&SecretString>) -> Value {
        match (self, secret) {
            (Self::Hidden, _) | (_, None) => Value::Null,
            (Self::Masked, Some(_)) => Value::from(MASK),
            (Self::Clear, Some(secret)) => exposed(secret),
        }
    }
}

impl Profile {
    /// The complete configuration, as `agent_settings.llm` shows it while the profile is active.
    pub fn view(&self, reveal: SecretVisibility, now: Timestamp) -> Value {
        self.agent.view(reveal, now)["llm"].take()
    }
}

/// The documents as the V1 routes show them.
impl Settings {
    /// The complete `agent_settings`. Values in `mcp_config` and in extra headers are masked unless shown in clear.
    pub fn agent_view(&self, reveal: SecretVisibility, now: Timestamp) -> Value {
        self.agent.view(reveal, now)
    }

    /// The complete `conversation_settings`.
    pub fn conversation_view(&self) -> Value {
        let mut document = CONVERSATION.defaults.clone();
        for field in &CONVERSATION.fields {
            document[&field.key] = CONVERSATION.effective(&self.conversation, field);
        }
        document
    }
}

impl AgentDocument {
    fn view(&self, reveal: SecretVisibility, now: Timestamp) -> Value {
        let (agent, variant) = (self, self.variant());
        let mut document = AGENT.defaults.clone();
        for field in &AGENT.fields {
            let Some(slot) = document.pointer_mut(&field.pointer()) else {
                continue;
            };
            *slot = if field.secret {
                reveal.show(agent.secrets.get(&field.pointer()))
            } else {
                AGENT.effective(&agent.overlay, field)
            };
            if is_guarded(field) && reveal != SecretVisibility::Clear {
                *slot = mask_guarded(field, slot.take());
            }
        }
        document["agent_kind"] = variant.into();
        document["mcp_config"] = agent.mcp_view(reveal);
        document["llm"]["is_subscription"] =
            (document["llm"]["auth_type"] == "subscription").into();
        if document["agent_context"]["current_datetime"].is_null() {
            document["agent_context"]["current_datetime"] = now.to_string().into();
        }
        if let Some(map) = document.as_object_mut() {
            map.retain(|name, _| {
                let group = |f: &&SettingsField| f.parts().0.unwrap_or(&f.key) == name;
                AGENT
                    .fields
                    .iter()
                    .find(group)
                    .is_none_or(|f| f.is_in(variant))
            });
        }
        document
    }

    fn mcp_view(&self, reveal: SecretVisibility) -> Value {
        let stored = self.mcp.as_ref();
        let stored: Option<Value> =
            stored.and_then(|t| serde_json::from_str(t.expose_secret()).ok());
        match (stored, reveal) {
            (None, _) => Value::Object(Map::new()),
            (Some(document), SecretVisibility::Clear) => document,
            (Some(document), _) => masked_opaque(&document),
        }
    }
}

/// `GET /api/v1/settings/agent-schema`.
pub fn agent_schema() -> Value {
    let section = |key, label, variant| SchemaSection {
        key,
        label,
        variant,
        of_agent: true,
    };
    AGENT.describe(
        "AgentSettings",
        &[
            section("general", "General", None),
            section("llm", "LLM", Some("openhands")),
            section("condenser", "Condenser", Some("openhands")),
            section("verification", "Verification", Some("openhands")),
            section("acp", "ACP (Agent Client Protocol)", Some("acp")),
            section("llm", "LLM (for metrics)", Some("acp")),
        ],
    )
}

/// `GET /api/v1/settings/conversation-schema`.
pub fn conversation_schema() -> Value {
    let section = |key, label| SchemaSection {
        key,
        label,
        variant: None,
        of_agent: false,
    };
    CONVERSATION.describe(
        "ConversationSettings",
        &[
            section("general", "General"),
            section("verification", "Verification"),
        ],
    )
}

/// Free-form objects whose values may be secret: shown masked; masks in requests keep the stored values.
fn is_guarded(field: &SettingsField) -> bool {
    matches!(
        field.key.as_str(),
        "llm.extra_headers" | "llm.litellm_extra_body"
    )
}

fn mask_guarded(field: &SettingsField, value: Value) -> Value {
    match value {
        Value::Object(map) if field.key == "llm.extra_headers" => Value::Object(
            map.into_iter()
                .map(|(name, _)| (name, Value::from(MASK)))
                .collect(),
        ),
        other => masked_members(&other),
    }
}
