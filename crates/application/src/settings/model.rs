//! A user's opened settings: plain values, two sparse documents over defaults, and separate secrets.

use std::collections::BTreeMap;
use std::fmt;

use domain::egress_list::EgressList;
use domain::git::GitProvider;
use domain::sandbox::SandboxGrouping;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::agent_document::AgentDocument;
use super::agent_profile::AgentProfiles;
use super::fields;
use super::mcp::McpConfig;
use super::profiles::list::Profiles;

#[derive(Debug, Clone)]
pub struct ProviderToken {
    /// The token; never blank.
    pub token: SecretString,
    /// The user's id there.
    pub user_id: Option<String>,
    /// Host as the user wrote it, without a trailing slash; `None` is the provider's own.
    pub host: Option<String>,
}

#[derive(Clone, Default)]
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
    pub enable_proactive_conversation_starters: OnByDefault,
    /// Stored for the front end.
    pub enable_solvability_analysis: OnByDefault,
    /// Stored for the front end.
    pub user_consents_to_analytics: Option<bool>,
    /// Stored only.
    pub sandbox_base_container_image: Option<String>,
    /// Stored only.
    pub sandbox_runtime_container_image: Option<String>,
    /// Names of skills that are not to be loaded.
    pub disabled_skills: Option<Vec<String>>,
    /// Names of catalogue skills that the user has turned on (stored for the front end).
    pub enabled_skills: Option<Vec<String>>,
    /// The profile whose model writes titles; `None`: the model of the conversation.
    pub title_llm_profile: Option<String>,
    pub search_api_key: Option<SecretString>,
    /// Stored only.
    pub sandbox_api_key: Option<SecretString>,
    /// Budget of one conversation in US dollars.
    pub max_budget_per_task: Option<f64>,
    /// Budget of a calendar month (UTC) in US dollars.
    pub max_budget_per_month: Option<f64>,
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
    /// How conversations share sandboxes; `None`: one sandbox for each.
    pub sandbox_grouping: Option<SandboxGrouping>,
    pub default_sandbox_spec_id: Option<String>,
    /// Hosts to which new sandboxes are limited.
    pub egress_allow: Option<EgressList>,
    /// Marketplaces in their normal form.
    pub registered_marketplaces: Vec<Value>,
    pub agent: AgentDocument,
    pub(super) conversation: Map<String, Value>,
    /// MCP servers of the legacy operations.
    pub mcp: Option<McpConfig>,
    pub provider_tokens: BTreeMap<GitProvider, ProviderToken>,
    pub profiles: Profiles,
    pub agent_profiles: AgentProfiles,
    /// Parts of the stored document that this version does not know: kept, never shown.
    pub(super) unread: Map<String, Value>,
}

/// Names of the values of `sandbox_grouping_strategy`; the first is the default.
pub(super) const GROUPINGS: [(&str, Option<SandboxGrouping>); 5] = [
    ("NO_GROUPING", None),
    ("GROUP_BY_NEWEST", Some(SandboxGrouping::Newest)),
    (
        "LEAST_RECENTLY_USED",
        Some(SandboxGrouping::LeastRecentlyUsed),
    ),
    (
        "FEWEST_CONVERSATIONS",
        Some(SandboxGrouping::FewestConversations),
    ),
    ("ADD_TO_ANY", Some(SandboxGrouping::Any)),
];

/// A switch that is on until the user switches it off.
#[derive(Debug, Clone, Copy)]
pub struct OnByDefault(pub bool);

impl Default for OnByDefault {
    fn default() -> Self {
        Self(true)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
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
