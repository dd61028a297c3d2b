//! Settings on the wire: the V1 documents, and shapes that both APIs share.
//!
//! No response contains a secret, except in clear to a sandbox that acts for its owner; see [`SecretVisibility`].

use std::collections::BTreeMap;
use std::fmt;

use actix_web::http::StatusCode;
use application::settings::{SecretVisibility, Settings, V1Refusal};
use domain::clock::Timestamp;
use domain::id::UserId;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::dto::configuration::profiles::SavedProfilesDto;
use crate::problem::Problem;

/// Always empty; for clients that expect it.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct Empty {}

/// The hosts of all stored tokens by provider.
pub(crate) fn tokens_set(s: &Settings) -> BTreeMap<&'static str, Option<String>> {
    let tokens = s.provider_tokens.iter();
    tokens
        .map(|(provider, t)| (provider.as_str(), t.host.clone()))
        .collect()
}

/// `{"message": …}`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub struct SettingsMessage {
    /// A text about the result.
    pub message: &'static str,
}

/// The error response to a refused V1 save; the text is in `error`.
pub(crate) fn settings_problem(refusal: V1Refusal) -> Problem {
    match refusal {
        V1Refusal::LegacyKeys(keys) => Problem::with_body(
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"error": "Use *_diff nested settings payloads instead of legacy keys", "keys": keys}),
        ),
        V1Refusal::Invalid(text) => Problem::bad_request(text).in_error_family(),
    }
}

/// `secrets_store` of the V1 responses.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = SecretsStore)]
pub struct SecretsStoreDto {
    provider_tokens: Empty,
}

/// The members of both V1 responses.
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingsFields {
    language: Option<String>,
    user_version: Option<i64>,
    remote_runtime_resource_factor: Option<i64>,
    secrets_store: SecretsStoreDto,
    enable_sound_notifications: bool,
    enable_proactive_conversation_starters: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    disabled_skills: Option<Vec<String>>,
    #[schema(value_type = Option<String>, format = Password)]
    search_api_key: Value,
    #[schema(value_type = Option<String>, format = Password)]
    sandbox_api_key: Value,
    max_budget_per_task: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    git_full_clone: bool,
    v1_enabled: bool,
    /// The agent's complete document; `/settings/agent-schema` describes its fields.
    #[schema(value_type = Object)]
    agent_settings: Value,
    /// The conversation's complete document.
    #[schema(value_type = Object)]
    conversation_settings: Value,
    #[schema(
        pattern = "^(NO_GROUPING|GROUP_BY_NEWEST|LEAST_RECENTLY_USED|FEWEST_CONVERSATIONS|ADD_TO_ANY)$"
    )]
    sandbox_grouping_strategy: String,
    default_sandbox_spec_id: Option<String>,
    llm_profiles: SavedProfilesDto,
    active_agent_profile_id: Option<String>,
    active_agent_profile_revision: Option<i64>,
    #[schema(value_type = Vec<Object>)]
    registered_marketplaces: Vec<Value>,
    #[schema(value_type = Vec<Object>)]
    inherited_marketplaces: Vec<Value>,
}

impl SettingsFields {
    fn of(s: &Settings, reveal: SecretVisibility, now: Timestamp) -> Self {
        Self {
            language: s.language.clone(),
            user_version: s.user_version,
            remote_runtime_resource_factor: s.remote_runtime_resource_factor,
            secrets_store: SecretsStoreDto::default(),
            enable_sound_notifications: s.enable_sound_notifications,
            enable_proactive_conversation_starters: s.enable_proactive_conversation_starters.0,
            user_consents_to_analytics: s.user_consents_to_analytics,
            sandbox_base_container_image: s.sandbox_base_container_image.clone(),
            sandbox_runtime_container_image: s.sandbox_runtime_container_image.clone(),
            disabled_skills: s.disabled_skills.clone(),
            search_api_key: reveal.show(s.search_api_key.as_ref()),
            sandbox_api_key: reveal.show(s.sandbox_api_key.as_ref()),
            max_budget_per_task: s.max_budget_per_task,
            email: s.email.clone(),
            email_verified: s.email_verified,
            git_user_name: s.git_user_name.clone(),
            git_user_email: s.git_user_email.clone(),
            git_full_clone: s.git_full_clone,
            v1_enabled: true,
            agent_settings: s.agent_view(reveal, now),
            conversation_settings: s.conversation_view(),
            sandbox_grouping_strategy: s.sandbox_grouping_strategy().to_owned(),
            default_sandbox_spec_id: s.default_sandbox_spec_id.clone(),
            llm_profiles: SavedProfilesDto::of(&s.profiles, reveal, now),
            active_agent_profile_id: None,
            active_agent_profile_revision: None,
            registered_marketplaces: s.registered_marketplaces.clone(),
            inherited_marketplaces: Vec::new(),
        }
    }
}

/// Response of `GET /api/v1/settings`. Secrets are null; flags say whether they are set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GETSettingsModel)]
pub struct SettingsDto {
    #[serde(flatten)]
    fields: SettingsFields,
    provider_tokens_set: BTreeMap<&'static str, Option<String>>,
    llm_api_key_set: bool,
    search_api_key_set: bool,
}

impl SettingsDto {
    /// Converts settings without their secrets.
    pub fn of(s: &Settings, now: Timestamp) -> Self {
        Self {
            fields: SettingsFields::of(s, SecretVisibility::Hidden, now),
            provider_tokens_set: tokens_set(s),
            llm_api_key_set: s.agent.llm_api_key().is_some(),
            search_api_key_set: s.search_api_key.is_some(),
        }
    }
}

/// Response of `GET /api/v1/users/me`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserInfo)]
pub struct UserDto {
    #[serde(flatten)]
    fields: SettingsFields,
    /// The user's id.
    #[schema(value_type = String)]
    id: UserId,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    llm: Option<LlmDto>,
}

/// The model with its key in clear, only with `expose_secrets`. The SDK's cloud workspace reads it here.
// `Debug` is not derived: the type contains a key.
#[derive(Serialize, ToSchema)]
#[schema(as = UserLlm)]
#[expect(clippy::struct_field_names, reason = "the wire's names")]
struct LlmDto {
    /// Model, as `agent_settings.llm.model`.
    #[schema(value_type = Option<String>)]
    llm_model: Value,
    /// The key in clear.
    #[schema(value_type = Option<String>)]
    llm_api_key: Value,
    /// Endpoint; null for the vendor's own.
    #[schema(value_type = Option<String>)]
    llm_base_url: Value,
}

impl fmt::Debug for LlmDto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmDto")
            .field("llm_model", &self.llm_model)
            .finish_non_exhaustive()
    }
}

impl UserDto {
    /// Converts settings, with this visibility of secrets.
    pub fn of(id: UserId, s: &Settings, reveal: SecretVisibility, now: Timestamp) -> Self {
        let fields = SettingsFields::of(s, reveal, now);
        let field = |name: &str| fields.agent_settings["llm"][name].clone();
        let llm = (reveal == SecretVisibility::Clear).then(|| LlmDto {
            llm_model: field("model"),
            llm_api_key: field("api_key"),
            llm_base_url: field("base_url"),
        });
        Self { fields, id, llm }
    }
}

/// The changes: fields of the response, and differences to its two documents. Unknown fields are ignored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettingsUpdate)]
pub struct SettingsUpdateDto {
    /// Merged into `agent_settings` key by key; an `mcp_config` in it replaces the stored one.
    #[schema(value_type = Option<Object>)]
    agent_settings_diff: Option<Value>,
    /// Merged into `conversation_settings`.
    #[schema(value_type = Option<Object>)]
    conversation_settings_diff: Option<Value>,
    language: Option<String>,
    user_version: Option<i64>,
    remote_runtime_resource_factor: Option<i64>,
    #[schema(required = false)]
    enable_sound_notifications: bool,
    #[schema(required = false)]
    enable_proactive_conversation_starters: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    disabled_skills: Option<Vec<String>>,
    /// Null or blank clears; the mask keeps.
    #[schema(format = Password)]
    search_api_key: Option<String>,
    /// Null or blank clears; the mask keeps.
    #[schema(format = Password)]
    sandbox_api_key: Option<String>,
    max_budget_per_task: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    #[schema(required = false)]
    git_full_clone: bool,
    /// Which conversations share a sandbox.
    #[schema(
        required = false,
        pattern = "^(NO_GROUPING|GROUP_BY_NEWEST|LEAST_RECENTLY_USED|FEWEST_CONVERSATIONS|ADD_TO_ANY)$"
    )]
    sandbox_grouping_strategy: String,
    default_sandbox_spec_id: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    registered_marketplaces: Option<Vec<Value>>,
}

/// An error response with the member `error` instead of `detail`.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorText {
    /// What is wrong, as a text.
    error: String,
}
