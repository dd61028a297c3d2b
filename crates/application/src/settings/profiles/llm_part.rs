//! The `llm` part of an agent document: taken out, put in, compared.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::super::fields::AGENT;
use super::super::llm;
use super::super::model::{AgentDocument, LLM_API_KEY};

/// Name of the part.
pub(super) const LLM: &str = "llm";
/// How pointers of its secrets begin.
const LLM_POINTER_PREFIX: &str = "/llm/";

impl AgentDocument {
    /// Nothing but the model's configuration. The model stands in it, also where it is the default one: defaults change.
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

    /// A document that sets nothing but these values of the model's configuration.
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

    /// Takes the model's configuration of `other` in place of its own. A configuration without a key leaves the one there
    /// is, if that was for the same place: it would be lost, and it goes nowhere else.
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

    /// Whether both configurations send their key to the same place.
    fn has_same_destination(&self, other: &Self) -> bool {
        let vendor = |agent: &Self| llm::vendor_of(&agent.effective_model());
        self.llm_base_url() == other.llm_base_url()
            && (self.llm_base_url().is_some() || vendor(self) == vendor(other))
    }

    /// Whether the model's configuration is that of `other`, as far as `other` says (it may have no key).
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
