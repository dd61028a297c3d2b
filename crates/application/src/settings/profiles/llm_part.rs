//! The `llm` part of an agent document: extraction, replacement and comparison.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::super::fields::AGENT;
use super::super::llm;
use super::super::model::{AgentDocument, LLM_API_KEY};

/// Name of the part.
pub(super) const LLM: &str = "llm";
/// Prefix of the pointers of its secrets.
const LLM_POINTER_PREFIX: &str = "/llm/";

impl AgentDocument {
    /// A document with only the model's configuration. It names the model even if it is the default one, because
    /// defaults change.
    pub(super) fn llm_part(&self) -> Self {
        let mut part = Self::with_llm(self.llm_values().cloned().unwrap_or_default());
        part.secrets = self.llm_secrets();
        part.key_vendor.clone_from(&self.key_vendor);
        if part.llm_model().is_none() {
            let model = self.effective_model();
            super::super::fields::put(&mut part.overlay, "llm.model", Some(model.into()));
        }
        part
    }

    /// A document with only these values of the model's configuration.
    pub(super) fn with_llm(values: Map<String, Value>) -> Self {
        let mut overlay = Map::new();
        overlay.insert(LLM.to_owned(), Value::Object(values));
        Self {
            overlay,
            ..Self::default()
        }
    }

    pub(super) fn llm_values(&self) -> Option<&Map<String, Value>> {
        self.overlay.get(LLM)?.as_object()
    }

    pub(super) fn llm_secrets(&self) -> BTreeMap<String, SecretString> {
        let secrets = self.secrets.iter();
        let of_llm = secrets.filter(|(pointer, _)| pointer.starts_with(LLM_POINTER_PREFIX));
        of_llm.map(|(p, s)| (p.clone(), s.clone())).collect()
    }

    /// Replaces the model's configuration by that of `other`. A configuration without a key keeps the current key if
    /// it has the same destination; otherwise the key would be lost, or sent elsewhere.
    pub(super) fn use_llm_of(&mut self, other: &Self) {
        let kept = self
            .llm_api_key()
            .cloned()
            .filter(|_| self.has_same_destination(other));
        let values = other.llm_values().cloned().unwrap_or_default();
        self.overlay.insert(LLM.to_owned(), Value::Object(values));
        self.secrets
            .retain(|pointer, _| !pointer.starts_with(LLM_POINTER_PREFIX));
        self.secrets.extend(other.llm_secrets());
        if other.llm_api_key().is_some() {
            self.key_vendor.clone_from(&other.key_vendor);
        } else if let Some(key) = kept {
            self.secrets.insert(LLM_API_KEY.to_owned(), key);
        } else {
            self.key_vendor = None;
        }
    }

    /// Whether both configurations send their key to the same destination.
    fn has_same_destination(&self, other: &Self) -> bool {
        let vendor = |agent: &Self| llm::vendor_of(&agent.effective_model());
        self.llm_base_url() == other.llm_base_url()
            && (self.llm_base_url().is_some() || vendor(self) == vendor(other))
    }

    /// Whether the model's configuration equals that of `other`, which may lack a key.
    pub(super) fn has_llm_of(&self, other: &Self) -> bool {
        let mut fields = AGENT.fields.iter().filter(|f| f.parts().0 == Some(LLM));
        fields.all(|field| {
            if !field.secret {
                return AGENT.effective(&self.overlay, field)
                    == AGENT.effective(&other.overlay, field);
            }
            let pointer = field.pointer();
            let secret = |agent: &Self| {
                let secret = agent.secrets.get(&pointer);
                secret.map(|s| s.expose_secret().to_owned())
            };
            (pointer == LLM_API_KEY && other.llm_api_key().is_none())
                || secret(self) == secret(other)
        })
    }
}
