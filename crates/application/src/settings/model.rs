//! A user's opened settings: plain values, two sparse documents over defaults, and separate secrets.

use std::collections::BTreeMap;
use std::fmt;

use domain::conversation::GitProvider;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::fields;
use super::mcp::McpConfig;
use super::profiles::Profiles;

/// Stands for a secret in responses. In a request it means "as stored".
pub const MASK: &str = "**********";

/// JSON pointer of the model's key among the secrets of an [`AgentDocument`].
pub const LLM_API_KEY: &str = "/llm/api_key";

/// A git provider's token.
#[derive(Debug, Clone)]
pub struct ProviderToken {
    /// The token; never blank.
    pub token: SecretString,
    /// The user's id there.
    pub user_id: Option<String>,
    /// Host as the user wrote it, without a trailing slash; `None` is the provider's own.
    pub host: Option<String>,
}

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
}

/// The settings of a user.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a settings page"
)]
#[derive(Clone)]
pub struct Settings {
    /// Language of the front end (stored for it).
    pub language: Option<String>,
    /// Version of the terms that the front end showed (stored for it).
    pub user_version: Option<i64>,
    /// Stored only.
    pub remote_runtime_resource_factor: Option<i64>,
    /// Stored for the front end.
    pub enable_sound_notifications: bool,
    /// Stored for the front end.
    pub enable_proactive_conversation_starters: bool,
    /// Stored for the front end.
    pub enable_solvability_analysis: bool,
    /// Stored for the front end.
    pub user_consents_to_analytics: Option<bool>,
    /// Stored only.
    pub sandbox_base_container_image: Option<String>,
    /// Stored only.
    pub sandbox_runtime_container_image: Option<String>,
    /// Names of skills that are not to be loaded.
    pub disabled_skills: Option<Vec<String>>,
    /// Key of the search service.
    pub search_api_key: Option<SecretString>,
    /// Stored only.
    pub sandbox_api_key: Option<SecretString>,
    /// Budget of one conversation in US dollars.
    pub max_budget_per_task: Option<f64>,
    /// Stored for the front end; not checked.
    pub email: Option<String>,
    /// Stored for the front end.
    pub email_verified: Option<bool>,
    /// `user.name` of git in the sandbox.
    pub git_user_name: Option<String>,
    /// `user.email` of git in the sandbox.
    pub git_user_email: Option<String>,
    /// Whether repositories are cloned with their whole history.
    pub git_full_clone: bool,
    /// How conversations share sandboxes, one of [`GROUPINGS`].
    pub sandbox_grouping_strategy: String,
    /// Spec for new sandboxes.
    pub default_sandbox_spec_id: Option<String>,
    /// Marketplaces in their normal form.
    pub registered_marketplaces: Vec<Value>,
    /// The agent document.
    pub agent: AgentDocument,
    /// The conversation document, sparse.
    pub(super) conversation: Map<String, Value>,
    /// MCP servers of the legacy operations.
    pub mcp: Option<McpConfig>,
    /// Git tokens.
    pub provider_tokens: BTreeMap<GitProvider, ProviderToken>,
    /// Named configurations of the model.
    pub profiles: Profiles,
    /// Parts of the stored document that this version does not know: kept, never shown.
    pub(super) unread: Map<String, Value>,
}

/// Known values of `sandbox_grouping_strategy`; the first is the default.
pub const GROUPINGS: [&str; 5] = [
    "NO_GROUPING",
    "GROUP_BY_NEWEST",
    "LEAST_RECENTLY_USED",
    "FEWEST_CONVERSATIONS",
    "ADD_TO_ANY",
];

impl Default for Settings {
    fn default() -> Self {
        Self {
            language: None,
            user_version: None,
            remote_runtime_resource_factor: None,
            enable_sound_notifications: false,
            enable_proactive_conversation_starters: true,
            enable_solvability_analysis: true,
            user_consents_to_analytics: None,
            sandbox_base_container_image: None,
            sandbox_runtime_container_image: None,
            disabled_skills: None,
            search_api_key: None,
            sandbox_api_key: None,
            max_budget_per_task: None,
            email: None,
            email_verified: None,
            git_user_name: None,
            git_user_email: None,
            git_full_clone: false,
            sandbox_grouping_strategy: GROUPINGS[0].to_owned(),
            default_sandbox_spec_id: None,
            registered_marketplaces: Vec::new(),
            agent: AgentDocument::default(),
            conversation: Map::new(),
            mcp: None,
            provider_tokens: BTreeMap::new(),
            profiles: Profiles::default(),
            unread: Map::new(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl fmt::Debug for AgentDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentDocument").finish_non_exhaustive()
    }
}

impl AgentDocument {
    /// `openhands` or `acp`.
    pub fn variant(&self) -> &str {
        match self.overlay.get("agent_kind").and_then(Value::as_str) {
            Some("acp") => "acp",
            _ => "openhands",
        }
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

    /// Model that the user chose.
    pub fn llm_model(&self) -> Option<&str> {
        self.text("llm.model")
    }

    /// Endpoint that the user chose.
    pub fn llm_base_url(&self) -> Option<&str> {
        self.text("llm.base_url")
    }

    /// Key of the model.
    pub fn llm_api_key(&self) -> Option<&SecretString> {
        self.secrets.get(LLM_API_KEY)
    }
}

impl Settings {
    /// The user's own value of a field of the conversation document.
    pub(super) fn conversation_value(&self, key: &str) -> Option<&Value> {
        self.conversation.get(key).filter(|v| !v.is_null())
    }

    /// The value in force of a field of the conversation document.
    pub(super) fn conversation_effective(&self, key: &str) -> Value {
        fields::CONVERSATION.field(key).map_or(Value::Null, |f| {
            fields::CONVERSATION.effective(&self.conversation, f)
        })
    }
}

/// A secret in a request.
#[derive(Debug, Clone)]
pub enum SecretInput {
    /// The mask: keep the stored one.
    Keep,
    /// Blank: clear it.
    Clear,
    /// A new value, trimmed.
    Set(SecretString),
}

impl SecretInput {
    /// Parses a secret.
    pub fn from_text(text: &str) -> Self {
        match text.trim() {
            "" => Self::Clear,
            MASK => Self::Keep,
            value => Self::Set(SecretString::from(value.to_owned())),
        }
    }

    /// Applies it to the stored secret.
    pub fn apply(self, into: &mut Option<SecretString>) {
        match self {
            Self::Keep => {}
            Self::Clear => *into = None,
            Self::Set(value) => *into = Some(value),
        }
    }
}

/// Overwrites every text in a document that contained secrets.
pub(super) fn wipe(value: &mut Value) {
    use secrecy::zeroize::Zeroize;
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(map) => map.values_mut().for_each(wipe),
        _ => {}
    }
}

/// The secret in clear as a JSON value, which the caller wipes.
pub(super) fn exposed(secret: &SecretString) -> Value {
    Value::String(secret.expose_secret().to_owned())
}
