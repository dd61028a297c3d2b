//! Views of the V1 routes.

use domain::agent::AgentKind;
use domain::clock::Timestamp;
use serde_json::{Map, Value};

use super::super::agent_document::{AgentDocument, LLM, MASKED_LLM_OBJECTS};
use super::super::fields::{AGENT, CONVERSATION, SchemaSection, SettingsField};
use super::super::mcp::{masked_members, masked_opaque};
use super::super::model::Settings;
use super::super::profiles::Profile;
use super::super::secret::{MASK, SecretVisibility};

impl Profile {
    /// The complete configuration, as `agent_settings.llm` shows it while the profile is active.
    pub fn view(&self, reveal: SecretVisibility, now: Timestamp) -> Value {
        let mut llm = self.agent.view(reveal, now)["llm"].take();
        if let Some(id) = self.agent.connection {
            llm["provider_connection_id"] = id.to_string().into();
        }
        llm
    }
}

/// The documents as the V1 routes show them.
impl Settings {
    /// The complete `agent_settings`. Values in `mcp_config` and in extra headers are masked unless shown in plain text.
    pub fn agent_view(&self, reveal: SecretVisibility, now: Timestamp) -> Value {
        match self.connected_agent() {
            // Only a sandbox of the owner gets what the connection gives; other requests see what the user set.
            Ok(agent) if reveal == SecretVisibility::Clear => agent.view(reveal, now),
            _ => self.agent.view(reveal, now),
        }
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
        let kind = self.kind();
        let mut document = AGENT.defaults.clone();
        for field in &AGENT.fields {
            let Some(slot) = document.pointer_mut(&field.pointer()) else {
                continue;
            };
            *slot = if field.secret {
                reveal.show(self.secrets.get(&field.pointer()))
            } else {
                AGENT.effective(&self.overlay, field)
            };
            if reveal != SecretVisibility::Clear {
                mask_object(field, slot);
            }
        }
        document["agent_kind"] = kind.as_str().into();
        document["mcp_config"] = self.mcp_view(reveal);
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
                    .is_none_or(|f| f.is_in(kind))
            });
        }
        document
    }

    fn mcp_view(&self, reveal: SecretVisibility) -> Value {
        match (self.mcp_document(), reveal) {
            (None, _) => Value::Object(Map::new()),
            (Some(document), SecretVisibility::Clear) => document,
            (Some(document), _) => masked_opaque(&document),
        }
    }
}

/// `GET /api/v1/settings/agent-schema`.
pub fn agent_schema() -> Value {
    let (open_hands, acp) = (Some(AgentKind::OpenHands), Some(AgentKind::Acp));
    let section = |(key, label, variant)| SchemaSection {
        key,
        label,
        variant,
        of_agent: true,
    };
    let sections = [
        ("general", "General", None),
        ("llm", "LLM", open_hands),
        ("condenser", "Condenser", open_hands),
        ("verification", "Verification", open_hands),
        ("acp", "ACP (Agent Client Protocol)", acp),
        ("llm", "LLM (for metrics)", acp),
    ];
    AGENT.describe("AgentSettings", &sections.map(section))
}

/// `GET /api/v1/settings/conversation-schema`.
pub fn conversation_schema() -> Value {
    let section = |(key, label)| SchemaSection {
        key,
        label,
        variant: None,
        of_agent: false,
    };
    let sections = [("general", "General"), ("verification", "Verification")];
    CONVERSATION.describe("ConversationSettings", &sections.map(section))
}

/// Masks the values of a free-form object that may be secret.
fn mask_object(field: &SettingsField, value: &mut Value) {
    let (Some(LLM), name) = field.parts() else {
        return;
    };
    if !MASKED_LLM_OBJECTS.contains(&name) {
        return;
    }
    match value {
        Value::Object(headers) if name == "extra_headers" => {
            headers.values_mut().for_each(|value| *value = MASK.into());
        }
        other => *other = masked_members(other),
    }
}
