//! Profiles in the stored document.

use serde_json::{Map, Value, json};

use super::super::document::{in_clear, secrets};
use super::super::model::AgentDocument;
use super::{Profile, Profiles};

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
        let active = stored.get("active").and_then(Value::as_str);
        profiles.active = active
            .filter(|name| profiles.find(name).is_some())
            .map(str::to_owned);
        Some(profiles)
    }

    /// In clear, for sealing; null if there are none. The caller wipes it.
    pub(in super::super) fn to_json(&self) -> Value {
        if self.list.is_empty() && self.unread.is_empty() {
            return Value::Null;
        }
        let known = self.list.iter().map(Profile::to_json);
        let list: Vec<Value> = known.chain(self.unread.iter().cloned()).collect();
        json!({"active": self.active, "list": list})
    }
}

impl Profile {
    fn read(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let values: Map<String, Value> = entry.get("llm")?.as_object()?.clone();
        let mut agent = AgentDocument::with_llm(values);
        agent.secrets = entry.get("secrets").and_then(secrets).unwrap_or_default();
        agent.key_vendor = text("key_vendor");
        let name = text("name")?;
        Some(Self { name, agent })
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "llm": self.agent.llm_values(),
            "secrets": in_clear(&self.agent.secrets),
            "key_vendor": self.agent.key_vendor,
        })
    }
}
