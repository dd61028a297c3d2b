//! The settings of the legacy API; see `docs/reference/wire/legacy.md`.

use std::collections::BTreeMap;

use application::settings::{LegacySettings, McpConfig, Settings};
use secrecy::SecretString;
use serde_json::Value;

use crate::decode::{Patch, Sensitive, model};
use crate::dto::configuration::mcp::McpConfigDto;
use crate::dto::configuration::settings::{Empty, tokens_set};

/// `secrets_store` of the legacy response: its members are always empty objects.
#[model(response = UserSecrets)]
#[derive(Clone, Copy, Default)]
pub(crate) struct UserSecretsDto {
    provider_tokens: Empty,
    custom_secrets: Empty,
}

/// The settings of the legacy operations.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the shape of the documented legacy API"
)]
#[model(response = LegacySettings, not_required, from(s: &Settings))]
pub(crate) struct LegacySettingsDto {
    language: Option<String>,
    #[from(s.legacy_agent().map(str::to_owned))]
    agent: Option<String>,
    #[from(s.legacy_max_iterations())]
    max_iterations: Option<i64>,
    #[from(s.legacy_security_analyzer().map(str::to_owned))]
    security_analyzer: Option<String>,
    #[from(s.legacy_confirmation_mode())]
    confirmation_mode: Option<bool>,
    #[from(s.agent.llm_model().map(str::to_owned))]
    llm_model: Option<String>,
    /// Always null; see `llm_api_key_set`.
    #[schema(format = Password)]
    #[from(None)]
    llm_api_key: Option<String>,
    #[from(s.agent.llm_base_url().map(str::to_owned))]
    llm_base_url: Option<String>,
    remote_runtime_resource_factor: Option<i64>,
    #[schema(required = false)]
    #[from(UserSecretsDto::default())]
    secrets_store: UserSecretsDto,
    #[schema(required = false, default = true)]
    #[from(s.legacy_default_condenser())]
    enable_default_condenser: bool,
    #[schema(required = false, default = false)]
    enable_sound_notifications: bool,
    #[schema(required = false, default = true)]
    #[from(s.enable_proactive_conversation_starters.0)]
    enable_proactive_conversation_starters: bool,
    #[schema(required = false, default = true)]
    #[from(s.enable_solvability_analysis.0)]
    enable_solvability_analysis: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    /// Absent if never set. Keys and environments are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = McpConfigDto, required = false)]
    #[from(s.legacy_mcp())]
    mcp_config: Option<Value>,
    /// Always null; see `search_api_key_set`.
    #[schema(format = Password)]
    #[from(None)]
    search_api_key: Option<String>,
    /// Always null.
    #[schema(format = Password)]
    #[from(None)]
    sandbox_api_key: Option<String>,
    max_budget_per_task: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    #[schema(required = false)]
    #[from(true)]
    v1_enabled: bool,
    /// Provider → host, one entry per stored token; a host of null is the provider's own.
    #[schema(required = false)]
    #[from(tokens_set(s))]
    provider_tokens_set: BTreeMap<&'static str, Option<String>>,
    #[from(s.agent.llm_api_key().is_some())]
    llm_api_key_set: bool,
    #[schema(required = false, default = false)]
    #[from(s.search_api_key.is_some())]
    search_api_key_set: bool,
}

/// The changes: absent fields stay. Null resets a field, except `llm_model`, `llm_api_key`, `llm_base_url`,
/// `search_api_key`, `sandbox_api_key`, `mcp_config` and `user_consents_to_analytics`, which stay. Unknown fields are ignored.
#[model(body = LegacySettingsUpdate)]
pub(crate) struct LegacySettingsUpdateDto {
    language: Patch<String>,
    agent: Patch<String>,
    max_iterations: Patch<i64>,
    security_analyzer: Patch<String>,
    confirmation_mode: Patch<bool>,
    llm_model: Option<String>,
    /// Blank clears; the mask keeps.
    llm_api_key: Option<SecretString>,
    llm_base_url: Option<String>,
    remote_runtime_resource_factor: Patch<i64>,
    /// Clients send back what they received. Only an object is accepted; its content has no effect.
    #[decode(not_null)]
    #[validate(custom(function = check_secrets_store))]
    #[schema(ignore)]
    #[expect(dead_code, reason = "only validated")]
    secrets_store: Option<Sensitive<Value>>,
    #[decode(not_null)]
    enable_default_condenser: Option<bool>,
    #[decode(not_null)]
    enable_sound_notifications: Option<bool>,
    #[decode(not_null)]
    enable_proactive_conversation_starters: Option<bool>,
    #[decode(not_null)]
    enable_solvability_analysis: Option<bool>,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Patch<String>,
    sandbox_runtime_container_image: Patch<String>,
    mcp_config: Option<McpConfigDto>,
    /// Blank clears; the mask keeps, as does `""` beside `search_api_key_set: true` (the 1.3 settings page).
    search_api_key: Option<SecretString>,
    /// An echo of the response, which is not validated: only true has an effect.
    #[schema(ignore)]
    search_api_key_set: Option<Sensitive<Value>>,
    /// Blank clears; the mask keeps.
    sandbox_api_key: Option<SecretString>,
    max_budget_per_task: Patch<f64>,
    email: Patch<String>,
    email_verified: Patch<bool>,
    git_user_name: Patch<String>,
    git_user_email: Patch<String>,
}

fn check_secrets_store(value: &Sensitive<Value>) -> Result<(), &'static str> {
    if value.0.is_object() {
        return Ok(());
    }
    Err("Secrets must be initialized with a dictionary")
}

/// `change("name", update.name)` of each member.
macro_rules! members {
    ($change:ident, $update:ident: $($name:ident),+) => {
        [$($change(stringify!($name), $update.$name)),+]
    };
}

impl From<LegacySettingsUpdateDto> for LegacySettings {
    fn from(update: LegacySettingsUpdateDto) -> Self {
        let shown_as_set = update.search_api_key_set;
        // Null resets the first ones and keeps the others.
        let fields = members!(named, update: language, agent, max_iterations, security_analyzer,
            confirmation_mode, remote_runtime_resource_factor, sandbox_base_container_image,
            sandbox_runtime_container_image, max_budget_per_task, email, email_verified, git_user_name,
            git_user_email);
        let flags = members!(flag, update: enable_default_condenser, enable_sound_notifications,
            enable_proactive_conversation_starters, enable_solvability_analysis,
            user_consents_to_analytics);
        Self {
            fields: fields.into_iter().chain(flags).flatten().collect(),
            llm_model: update.llm_model,
            llm_api_key: update.llm_api_key,
            llm_base_url: update.llm_base_url,
            mcp_config: update.mcp_config.map(McpConfig::from),
            search_api_key: update.search_api_key,
            search_api_key_set: shown_as_set.is_some_and(|shown| shown.0 == true),
            sandbox_api_key: update.sandbox_api_key,
        }
    }
}

/// The change of a field by its name; null resets it.
fn named<T: Into<Value>>(name: &str, change: Patch<T>) -> Option<(String, Value)> {
    let value = change.into_update()?;
    Some((name.to_owned(), value.map_or(Value::Null, Into::into)))
}

/// The change of a field that a null keeps.
fn flag(name: &str, value: Option<bool>) -> Option<(String, Value)> {
    Some((name.to_owned(), value?.into()))
}
