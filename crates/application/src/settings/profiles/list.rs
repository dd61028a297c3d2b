//! The user's profiles, and their form in the stored document.

use std::fmt;

use domain::id::ProviderConnectionId;
use serde_json::{Map, Value, json};

use super::super::agent_document::{AgentDocument, LLM_API_KEY};
use super::super::secret::{in_clear, read_secrets};
use super::connection::ProviderConnection;

/// A named configuration of the model.
#[derive(Debug, Clone)]
pub struct Profile {
    pub(super) name: String,
    /// Only the `llm` part is set.
    pub(in crate::settings) agent: AgentDocument,
}

impl Profile {
    /// Its name: `[A-Za-z0-9._-]{1,64}`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its model, or the default one.
    pub fn model(&self) -> String {
        self.agent.effective_model()
    }

    /// Its endpoint; `None` is the vendor's own.
    pub fn base_url(&self) -> Option<&str> {
        self.agent.llm_base_url()
    }

    /// The connection that gives its endpoint and key.
    pub fn connection(&self) -> Option<ProviderConnectionId> {
        self.agent.connection
    }

    /// Whether it has a key of its own.
    pub fn has_key(&self) -> bool {
        self.agent.secrets.contains_key(LLM_API_KEY)
    }
}

/// A user's profiles in the order of creation.
#[derive(Clone, Default)]
pub struct Profiles {
    pub(super) list: Vec<Profile>,
    pub(super) active: Option<String>,
    pub(super) connections: Vec<ProviderConnection>,
    /// Entries that this version cannot read: kept, never shown.
    unread: Vec<Value>,
}

impl fmt::Debug for Profiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiles")
            .field("list", &self.list)
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl Profiles {
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.list.iter()
    }

    pub fn find(&self, name: &str) -> Option<&Profile> {
        self.list.iter().find(|profile| profile.name == name)
    }

    pub fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// Keeps a profile active, if there is one: the active one, else that of before, else the first.
    pub(in super::super) fn keep_active(&mut self, before: Option<&str>) {
        let first = self.list.first().map(Profile::name);
        let candidates = [self.active(), before, first].into_iter().flatten();
        let kept = candidates
            .into_iter()
            .find(|name| self.find(name).is_some());
        self.active = kept.map(str::to_owned);
    }
}

impl Profiles {
    /// Parses profiles; `None` if the value is something else. Unreadable entries are kept.
    pub(in super::super) fn read(value: &Value) -> Option<Self> {
        let stored = value.as_object()?;
        let list = stored.get("list")?.as_array()?;
        let mut profiles = Self::default();
        for entry in list {
            match Profile::read(entry) {
                Some(profile) if profiles.find(&profile.name).is_none() => {
                    profiles.list.push(profile);
                }
                _ => profiles.unread.push(entry.clone()),
            }
        }
        let connections = stored.get("connections").and_then(Value::as_array);
        let connections = connections.into_iter().flatten();
        profiles.connections = connections.filter_map(ProviderConnection::read).collect();
        let active = stored.get("active").and_then(Value::as_str);
        profiles.active = active
            .filter(|name| profiles.find(name).is_some())
            .map(str::to_owned);
        Some(profiles)
    }

    /// In clear, for sealing; null if there are none. The caller wipes it.
    pub(in super::super) fn to_json(&self) -> Value {
        if self.list.is_empty() && self.unread.is_empty() && self.connections.is_empty() {
            return Value::Null;
        }
        let known = self.list.iter().map(Profile::to_json);
        let list: Vec<Value> = known.chain(self.unread.iter().cloned()).collect();
        let mut stored = json!({"active": self.active, "list": list});
        if !self.connections.is_empty() {
            let connections = self.connections.iter().map(ProviderConnection::to_json);
            stored["connections"] = connections.collect();
        }
        stored
    }
}

impl Profile {
    fn read(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let values: Map<String, Value> = entry.get("llm")?.as_object()?.clone();
        let mut agent = AgentDocument::with_llm(values);
        agent.secrets = entry
            .get("secrets")
            .and_then(read_secrets)
            .unwrap_or_default();
        agent.key_vendor = text("key_vendor");
        agent.connection = text("provider_connection").and_then(|id| id.parse().ok());
        let name = text("name")?;
        Some(Self { name, agent })
    }

    fn to_json(&self) -> Value {
        let mut stored = json!({
            "name": self.name,
            "llm": self.agent.llm_values(),
            "secrets": in_clear(&self.agent.secrets),
            "key_vendor": self.agent.key_vendor,
        });
        if let Some(id) = self.agent.connection {
            stored["provider_connection"] = json!(id);
        }
        stored
    }
}

impl Profiles {
    /// The connections, in the order of creation.
    pub fn connections(&self) -> &[ProviderConnection] {
        &self.connections
    }

    /// Whether a profile has a key, its own or that of its connection.
    pub fn has_key(&self, profile: &Profile) -> bool {
        match profile.connection() {
            Some(id) => self.connection(id).is_some_and(|it| it.api_key.is_some()),
            None => profile.has_key(),
        }
    }

    /// Whether the connection of a profile is gone.
    pub fn is_broken(&self, profile: &Profile) -> bool {
        profile
            .connection()
            .is_some_and(|id| self.connection(id).is_none())
    }

    pub fn connection(&self, id: ProviderConnectionId) -> Option<&ProviderConnection> {
        self.connections.iter().find(|it| it.id == id)
    }
}
