//! Agent profiles as they are stored.

use std::fmt;

use domain::agent::AgentKind;
use domain::id::AgentProfileId;
use serde_json::{Map, Value, json};

use super::fields::texts_of;

pub(super) const KIND: &str = "agent_kind";
pub(super) const MODEL_PROFILE: &str = "llm_profile_ref";
pub(super) const MCP_SERVERS: &str = "mcp_server_refs";

/// Fields that replace those of the same name in the agent's settings.
pub(super) const AGENT_FIELDS: [&str; 11] = [
    "agent",
    "tools",
    "tool_concurrency_limit",
    "condenser",
    "verification",
    "acp_server",
    "acp_command",
    "acp_args",
    "acp_model",
    "acp_session_mode",
    "acp_prompt_timeout",
];
/// Fields that replace those of the agent's context.
pub(super) const CONTEXT_FIELDS: [&str; 2] = ["system_message_suffix", "disabled_skills"];
#[derive(Clone)]
pub struct AgentProfile {
    /// Does not change when the profile is renamed.
    pub id: AgentProfileId,
    pub name: String,
    /// Counts the saves.
    pub revision: i64,
    /// Everything else, as it was sent.
    pub(super) values: Map<String, Value>,
}

impl fmt::Debug for AgentProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentProfile")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The agent profiles of a user or a shared organization, in the order of creation.
#[derive(Debug, Clone, Default)]
pub struct AgentProfiles {
    pub(super) list: Vec<AgentProfile>,
    pub(super) active: Option<AgentProfileId>,
}

impl AgentProfiles {
    pub fn iter(&self) -> impl Iterator<Item = &AgentProfile> {
        self.list.iter()
    }

    pub fn find(&self, name: &str) -> Option<&AgentProfile> {
        self.list.iter().find(|profile| profile.name == name)
    }

    pub(super) fn find_by_id(&self, id: AgentProfileId) -> Option<&AgentProfile> {
        self.list.iter().find(|profile| profile.id == id)
    }

    pub fn active(&self) -> Option<&AgentProfile> {
        self.find_by_id(self.active?)
    }

    /// Replaces the profiles by those of `other`; the active one stays the same.
    pub(super) fn take_list_of(&mut self, other: Self) {
        self.list = other.list;
    }

    /// Parses profiles; `None` if the value is something else.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let list = value.get("list")?.as_array()?;
        let list = list.iter().map(AgentProfile::read).collect::<Option<_>>()?;
        let active = value.get("active").and_then(Value::as_str);
        Some(Self {
            list,
            active: active.and_then(|id| id.parse().ok()),
        })
    }

    /// For the stored document; null if there are none.
    pub(super) fn to_json(&self) -> Value {
        if self.list.is_empty() && self.active.is_none() {
            return Value::Null;
        }
        let list = self.list.iter().map(|profile| {
            let AgentProfile {
                id,
                name,
                revision,
                values,
            } = profile;
            json!({"id": id, "name": name, "revision": revision, "values": values})
        });
        json!({"active": self.active, "list": list.collect::<Vec<_>>()})
    }
}

impl AgentProfile {
    fn read(entry: &Value) -> Option<Self> {
        Some(Self {
            id: entry.get("id")?.as_str()?.parse().ok()?,
            name: entry.get("name")?.as_str()?.to_owned(),
            revision: entry.get("revision")?.as_i64()?,
            values: entry.get("values")?.as_object()?.clone(),
        })
    }

    pub fn kind(&self) -> AgentKind {
        let kind = self.values.get(KIND).and_then(Value::as_str);
        kind.and_then(|name| name.parse().ok()).unwrap_or_default()
    }

    /// The name of its model profile. Agents that bring their own model have none.
    pub fn model_profile(&self) -> Option<&str> {
        self.values.get(MODEL_PROFILE)?.as_str()
    }

    /// The names of the MCP servers that it may use; `None` for all.
    pub fn mcp_servers(&self) -> Option<Vec<String>> {
        self.names(MCP_SERVERS)
    }

    pub(super) fn names(&self, key: &str) -> Option<Vec<String>> {
        let value = self.values.get(key).filter(|value| !value.is_null());
        value.map(|value| texts_of(Some(value)))
    }

    /// The complete profile, as front ends edit it.
    pub fn view(&self) -> Map<String, Value> {
        let mut view = self.values.clone();
        view.insert(KIND.to_owned(), self.kind().as_str().into());
        view.insert("id".to_owned(), self.id.dashed().into());
        view.insert("name".to_owned(), self.name.as_str().into());
        view.insert("revision".to_owned(), self.revision.into());
        view
    }

    /// Its values of the agent's settings.
    pub(super) fn agent_fields(&self) -> Map<String, Value> {
        let present = |key: &&str| self.values.get(*key).is_some_and(|value| !value.is_null());
        let value = |key: &str| (key.to_owned(), self.values[key].clone());
        let mut fields: Map<String, Value> = AGENT_FIELDS
            .into_iter()
            .filter(present)
            .map(value)
            .collect();
        let context: Map<String, Value> = CONTEXT_FIELDS
            .into_iter()
            .filter(present)
            .map(value)
            .collect();
        if !context.is_empty() {
            fields.insert("agent_context".to_owned(), Value::Object(context));
        }
        fields
    }
}
