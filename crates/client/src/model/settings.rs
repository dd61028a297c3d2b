//! Settings and users.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::document::Document;
use super::secret::Secret;

/// Members that the responses about settings and users share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the wire's switches")]
pub struct SettingsFields {
    pub language: Option<String>,
    pub user_version: Option<i64>,
    pub remote_runtime_resource_factor: Option<i64>,
    pub secrets_store: SecretsStore,
    pub enable_sound_notifications: bool,
    pub enable_proactive_conversation_starters: bool,
    pub git_full_clone: bool,
    pub v1_enabled: bool,
    pub user_consents_to_analytics: Option<bool>,
    pub sandbox_base_container_image: Option<String>,
    pub sandbox_runtime_container_image: Option<String>,
    pub disabled_skills: Option<Vec<String>>,
    pub enabled_skills: Option<Vec<String>>,
    pub title_llm_profile: Option<String>,
    pub search_api_key: Option<Secret>,
    pub sandbox_api_key: Option<Secret>,
    pub max_budget_per_task: Option<f64>,
    pub max_budget_per_month: Option<f64>,
    pub email: Option<String>,
    pub email_verified: Option<bool>,
    pub git_user_name: Option<String>,
    pub git_user_email: Option<String>,
    pub agent_settings: Document,
    pub conversation_settings: Document,
    pub sandbox_grouping_strategy: String,
    pub default_sandbox_spec_id: Option<String>,
    /// Hosts to which new sandboxes are limited.
    pub egress_allow: Option<Vec<String>>,
    pub llm_profiles: Profiles,
    pub active_agent_profile_id: Option<String>,
    pub active_agent_profile_revision: Option<i64>,
    pub registered_marketplaces: Vec<Document>,
    pub inherited_marketplaces: Vec<Document>,
}

/// Tokens of git providers, which are never shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretsStore {
    /// Empty.
    pub provider_tokens: Document,
}

/// Saved settings of models.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Profiles {
    pub profiles: Document,
    pub active: Option<String>,
}

/// The user's settings. Secrets are `None`; the flags say whether they are set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserSettings {
    #[serde(flatten)]
    pub fields: SettingsFields,
    /// Providers with a token, and their hosts.
    pub provider_tokens_set: BTreeMap<String, Option<String>>,
    pub llm_api_key_set: bool,
    pub search_api_key_set: bool,
}

/// The key's user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserInfo {
    #[serde(flatten)]
    pub fields: SettingsFields,
    pub id: String,
    /// The model; only if secrets are exposed.
    pub llm_model: Option<String>,
    /// Its key; only if secrets are exposed.
    pub llm_api_key: Option<Secret>,
    /// Its base URL; only if secrets are exposed.
    pub llm_base_url: Option<String>,
}

/// A change of the settings. Omitted members stay as they are.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsChange {
    /// Merged into `agent_settings`.
    pub agent_settings_diff: Option<Document>,
    /// Merged into `conversation_settings`.
    pub conversation_settings_diff: Option<Document>,
    pub language: Option<String>,
    pub user_version: Option<i64>,
    pub remote_runtime_resource_factor: Option<i64>,
    pub enable_sound_notifications: Option<bool>,
    pub enable_proactive_conversation_starters: Option<bool>,
    pub user_consents_to_analytics: Option<bool>,
    pub sandbox_base_container_image: Option<String>,
    pub sandbox_runtime_container_image: Option<String>,
    pub disabled_skills: Option<Vec<String>>,
    pub enabled_skills: Option<Vec<String>>,
    pub title_llm_profile: Option<String>,
    pub search_api_key: Option<Secret>,
    pub sandbox_api_key: Option<Secret>,
    pub max_budget_per_task: Option<f64>,
    pub max_budget_per_month: Option<f64>,
    pub email: Option<String>,
    pub email_verified: Option<bool>,
    pub git_user_name: Option<String>,
    pub git_user_email: Option<String>,
    pub git_full_clone: Option<bool>,
    pub sandbox_grouping_strategy: Option<String>,
    pub default_sandbox_spec_id: Option<String>,
    /// Hosts to which new sandboxes are limited.
    pub egress_allow: Option<Vec<String>>,
    pub registered_marketplaces: Option<Vec<Document>>,
}
