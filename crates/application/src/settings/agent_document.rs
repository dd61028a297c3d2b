//! The agent document of a user, sparse over the defaults, with its secrets apart.

use std::collections::BTreeMap;
use std::fmt;

use domain::agent::AgentKind;
use domain::id::ProviderConnectionId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::fields::{self, AGENT, put};
use super::issues::Issue;
use super::llm;
use super::secret::SecretInput;

pub(super) const LLM: &str = "llm";
/// Prefix of the pointers of its secrets.
const LLM_POINTER_PREFIX: &str = "/llm/";
/// JSON pointer of the model's key among the secrets of an [`AgentDocument`].
pub const LLM_API_KEY: &str = "/llm/api_key";
/// Free-form objects of the model's configuration whose values may be secret: shown masked; masks in requests keep the
/// stored values.
pub(super) const MASKED_LLM_OBJECTS: [&str; 2] = ["extra_headers", "litellm_extra_body"];

/// Values of the model's configuration, besides `base_url`, that may name where its key is sent.
const OTHER_DESTINATIONS: [&str; 3] = [
    "aws_bedrock_runtime_endpoint",
    "ollama_base_url",
    "litellm_extra_body",
];

/// The agent document: only what the user set. Defaults are added when it is shown or used.
#[derive(Clone, Default)]
pub struct AgentDocument {
    pub(super) overlay: Map<String, Value>,
    /// Secrets by JSON pointer, for every field that the agent marks secret.
    pub(super) secrets: BTreeMap<String, SecretString>,
    /// The V1 `mcp_config` as JSON text, which is opaque and contains secrets.
    pub(super) mcp: Option<SecretString>,
    /// Vendor of the model when its key was stored: the key is sent to no other vendor.
    pub(super) key_vendor: Option<String>,
    /// The connection that gives the model's endpoint and key, instead of those here.
    pub(super) connection: Option<ProviderConnectionId>,
}

impl fmt::Debug for AgentDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentDocument").finish_non_exhaustive()
    }
}

impl AgentDocument {
    pub fn kind(&self) -> AgentKind {
        let kind = self.overlay.get("agent_kind").and_then(Value::as_str);
        kind.and_then(|name| name.parse().ok()).unwrap_or_default()
    }

    /// The user's own value of a string field, if set and not blank.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let field = fields::AGENT.field(key)?;
        fields::set_value(&self.overlay, field)?
            .as_str()
            .filter(|text| !text.trim().is_empty())
    }

    /// The value in force: the user's or the default.
    pub(super) fn effective(&self, key: &str) -> Value {
        fields::AGENT
            .field(key)
            .map_or(Value::Null, |f| fields::AGENT.effective(&self.overlay, f))
    }

    pub fn llm_model(&self) -> Option<&str> {
        self.text("llm.model")
    }

    pub fn llm_base_url(&self) -> Option<&str> {
        self.text("llm.base_url")
    }

    pub fn llm_api_key(&self) -> Option<&SecretString> {
        self.secrets.get(LLM_API_KEY)
    }

    /// The V1 `mcp_config`, if one is stored.
    pub(super) fn mcp_document(&self) -> Option<Value> {
        let text = self.mcp.as_ref()?.expose_secret();
        serde_json::from_str(text).ok()
    }

    pub(super) fn effective_model(&self) -> String {
        let default = self.effective("llm.model");
        let model = self.llm_model().or(default.as_str());
        model.unwrap_or_default().to_owned()
    }

    /// Merges changes of fields and settles endpoint and key with the model. A null secret clears the stored one,
    /// unless `keeps_null_secrets`.
    pub(super) fn merge_fields(
        &mut self,
        diff: &Map<String, Value>,
        keeps_null_secrets: bool,
    ) -> Vec<Issue> {
        let before = self.effective_model();
        let url_given = diff
            .get(LLM)
            .is_some_and(|llm| llm.get("base_url").is_some());
        let (secrets, mut key_given) = (&mut self.secrets, false);
        let issues = AGENT.merge(&mut self.overlay, diff, &mut |field, value| {
            if keeps_null_secrets && value.is_null() {
                return Ok(());
            }
            let (input, pointer) = (SecretInput::from_json(value)?, field.pointer());
            key_given |= pointer == LLM_API_KEY && matches!(input, SecretInput::Set(_));
            input.apply_in(secrets, &pointer);
            Ok(())
        });
        self.settle_llm(&before, url_given, key_given);
        issues
    }

    /// Sets the given values of the model's configuration (a blank one means not set), and settles endpoint and key
    /// with the model.
    pub(super) fn change_llm(
        &mut self,
        model: Option<&str>,
        base_url: Option<&str>,
        api_key: Option<&SecretString>,
    ) {
        let before = self.effective_model();
        if let Some(model) = model {
            let model = Some(model).filter(|text| !text.trim().is_empty());
            put(&mut self.overlay, "llm.model", model.map(Value::from));
        }
        if let Some(url) = base_url {
            put(&mut self.overlay, "llm.base_url", Some(url.into()));
        }
        let api_key = api_key.map(|key| SecretInput::from_text(key.expose_secret()));
        let key_given = matches!(api_key, Some(SecretInput::Set(_)));
        if let Some(key) = api_key {
            key.apply_in(&mut self.secrets, LLM_API_KEY);
        }
        self.settle_llm(&before, base_url.is_some(), key_given);
    }

    /// Settles a change: removes a default endpoint of the former model, and records the vendor of the key.
    fn settle_llm(&mut self, before: &str, url_given: bool, key_given: bool) {
        let model = self.effective_model();
        let url = self.llm_base_url().map(str::to_owned);
        let url = llm::settled_endpoint(before, &model, url, url_given);
        put(&mut self.overlay, "llm.base_url", url.map(Value::from));
        if key_given || (url_given && self.llm_base_url().is_some()) {
            self.connection = None;
        }
        if !self.secrets.contains_key(LLM_API_KEY) && self.connection.is_none() {
            self.key_vendor = None;
        } else if key_given || self.key_vendor.is_none() {
            self.key_vendor = self.llm_model().and_then(llm::vendor_of);
        }
    }
}

/// The model's configuration: extraction, replacement and comparison.
impl AgentDocument {
    /// A document with only the model's configuration. It names the model even if it is the default one, because
    /// defaults change.
    pub(super) fn llm_part(&self) -> Self {
        let mut part = Self::with_llm(self.llm_values().cloned().unwrap_or_default());
        part.secrets = self.llm_secrets();
        part.key_vendor.clone_from(&self.key_vendor);
        part.connection = self.connection;
        if part.llm_model().is_none() {
            let model = self.effective_model();
            put(&mut part.overlay, "llm.model", Some(model.into()));
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

    /// The user's values of the model's configuration.
    pub(super) fn llm_values(&self) -> Option<&Map<String, Value>> {
        self.overlay.get(LLM)?.as_object()
    }

    /// The secrets of the model's configuration.
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
            .filter(|_| other.connection.is_none() && self.has_same_destination(other));
        let values = other.llm_values().cloned().unwrap_or_default();
        self.overlay.insert(LLM.to_owned(), Value::Object(values));
        self.secrets
            .retain(|pointer, _| !pointer.starts_with(LLM_POINTER_PREFIX));
        self.secrets.extend(other.llm_secrets());
        self.connection = other.connection;
        if other.llm_api_key().is_some() || other.connection.is_some() {
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
        self.connection == other.connection
            && fields.all(|field| {
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

/// The model's configuration of members of a shared organization.
impl AgentDocument {
    /// Whether anything of the model's configuration is set.
    pub(super) fn has_llm(&self) -> bool {
        let mut values = self.llm_values().into_iter().flat_map(Map::values);
        self.connection.is_some()
            || values.any(|value| !value.is_null())
            || !self.llm_secrets().is_empty()
    }

    /// Whether a value other than `base_url` may send the key elsewhere.
    pub(super) fn has_other_destination(&self) -> bool {
        let values = self.llm_values();
        values.is_some_and(|values| {
            let mut keys = OTHER_DESTINATIONS.iter();
            keys.any(|key| values.get(*key).is_some_and(|value| !value.is_null()))
        })
    }

    pub(super) fn clear_llm(&mut self) {
        self.overlay.shift_remove(LLM);
        self.secrets
            .retain(|pointer, _| !pointer.starts_with(LLM_POINTER_PREFIX));
        self.key_vendor = None;
        self.connection = None;
    }

    /// Removes the model's secrets that `own` lacks.
    pub(super) fn retain_llm_secrets_of(&mut self, own: &Self) {
        self.secrets.retain(|pointer, _| {
            !pointer.starts_with(LLM_POINTER_PREFIX) || own.secrets.contains_key(pointer)
        });
        if !own.has_llm() {
            for key in MASKED_LLM_OBJECTS {
                put(&mut self.overlay, &format!("{LLM}.{key}"), None);
            }
        }
    }
}

impl AgentDocument {
    /// Takes over the model's key of another document, or the lack of one.
    pub(super) fn copy_key_from(&mut self, other: &Self) {
        self.secrets.remove(LLM_API_KEY);
        self.key_vendor = None;
        self.connection = other.connection;
        if let Some(key) = other.llm_api_key() {
            self.secrets.insert(LLM_API_KEY.to_owned(), key.clone());
            self.key_vendor.clone_from(&other.key_vendor);
        }
    }

    /// Takes endpoint and key from this connection, or from none. The key is sent to the vendor of the present model only.
    pub(super) fn connect(&mut self, connection: Option<ProviderConnectionId>) {
        self.connection = connection;
        if connection.is_some() {
            self.key_vendor = self.llm_model().and_then(llm::vendor_of);
        }
    }

    /// Also clears masked free-form objects.
    pub(super) fn clear_secrets(&mut self) {
        self.secrets.clear();
        self.key_vendor = None;
        self.connection = None;
        for key in MASKED_LLM_OBJECTS {
            put(&mut self.overlay, &format!("{LLM}.{key}"), None);
        }
    }
}
