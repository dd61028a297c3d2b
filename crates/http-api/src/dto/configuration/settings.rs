//! Settings on the wire: the V1 documents, and what both APIs share.
//!
//! No secret leaves in an answer, except in clear to a sandbox that acts for its owner; see [`SecretVisibility`].

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

/// Kept for clients that expect it: always empty.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct Empty {}

/// Provider → host of every stored token.
pub(crate) fn tokens_set(s: &Settings) -> BTreeMap<&'static str, Option<String>> {
    let tokens = s.provider_tokens.iter();
    tokens
        .map(|(provider, t)| (provider.as_str(), t.host.clone()))
        .collect()
}

/// `{"message": …}`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Message {
    /// What was done.
    pub message: &'static str,
}

/// A refused V1 save: the contract's family C.
pub(crate) fn refused(refusal: V1Refusal) -> Problem {
    match refusal {
        V1Refusal::LegacyKeys(keys) => Problem::with_body(
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"error": "Use *_diff nested settings payloads instead of legacy keys", "keys": keys}),
        ),
        V1Refusal::Invalid(text) => Problem::bad_request(text).in_error_family(),
    }
}

/// `secrets_store` of the V1 answer.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = SecretsStore)]
pub struct SecretsStoreDto {
    provider_tokens: Empty,
}

/// What both V1 answers show.
#[expect(clippy::struct_excessive_bools, reason = "the shape of the contract")]
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
    /// The agent's document, complete; its fields are described by `/settings/agent-schema`.
    #[schema(value_type = Object)]
    agent_settings: Value,
    /// The conversation's document, complete.
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
            enable_proactive_conversation_starters: s.enable_proactive_conversation_starters,
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
            sandbox_grouping_strategy: s.sandbox_grouping_strategy.clone(),
            default_sandbox_spec_id: s.default_sandbox_spec_id.clone(),
            llm_profiles: SavedProfilesDto::of(&s.profiles, reveal, now),
            active_agent_profile_id: None,
            active_agent_profile_revision: None,
            registered_marketplaces: s.registered_marketplaces.clone(),
            inherited_marketplaces: Vec::new(),
        }
    }
}

/// Answer of `GET /api/v1/settings`. Secrets are null; the flags say whether they are set.
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
    /// The settings with secrets hidden.
    pub fn of(s: &Settings, now: Timestamp) -> Self {
        Self {
            fields: SettingsFields::of(s, SecretVisibility::Hidden, now),
            provider_tokens_set: tokens_set(s),
            llm_api_key_set: s.agent.llm_api_key().is_some(),
            search_api_key_set: s.search_api_key.is_some(),
        }
    }
}

/// Answer of `GET /api/v1/users/me`.
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

/// The model in clear, only with `expose_secrets`: where the SDK's cloud workspace looks for it.
// `Debug` is not derived: it holds a key.
#[derive(Serialize, ToSchema)]
#[schema(as = UserLlm)]
#[expect(clippy::struct_field_names, reason = "the wire's names")]
struct LlmDto {
    /// Model, as `agent_settings.llm.model`.
    #[schema(value_type = Option<String>)]
    llm_model: Value,
    /// Key in clear.
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
    /// The user's settings with secrets as `reveal` says.
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

/// What to change: fields of the answer, and differences to its two documents. Unknown fields are ignored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettingsUpdate)]
pub struct SettingsUpdateDto {
    /// Merged into `agent_settings` key by key; `mcp_config` in it replaces the stored one.
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

/// What is wrong, where the member is `error` instead of `detail`.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorText {
    /// In words.
    error: String,
}
