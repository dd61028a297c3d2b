//! Settings on the wire: the V1 documents, and shapes that both APIs share.
//!
//! No response contains a secret, except in plain text to a sandbox that acts for its owner; see [`SecretVisibility`].

use std::collections::BTreeMap;
use std::fmt;

use actix_web::http::StatusCode;
use application::settings::{SecretVisibility, Settings, V1Refusal};
use domain::agent::{LlmConfig, LlmProfile};
use domain::clock::Timestamp;
use domain::id::UserId;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::decode::model;
use crate::dto::account::organization::MembershipDto;
use crate::dto::configuration::profiles::SavedProfilesDto;
use crate::problem::Problem;

/// Always empty; for clients that expect it.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct Empty {}

/// The hosts of all stored tokens by provider.
pub(crate) fn tokens_set(s: &Settings) -> BTreeMap<&'static str, Option<String>> {
    let tokens = s.provider_tokens.iter();
    tokens
        .map(|(provider, t)| (provider.as_str(), t.host.clone()))
        .collect()
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
#[model(response = SecretsStore)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SecretsStoreDto {
    provider_tokens: Empty,
}

/// The members of both V1 responses.
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
#[model(response, not_required, from(s: &Settings, reveal: SecretVisibility, now: Timestamp))]
pub(crate) struct SettingsFields {
    language: Option<String>,
    user_version: Option<i64>,
    remote_runtime_resource_factor: Option<i64>,
    #[from(SecretsStoreDto::default())]
    secrets_store: SecretsStoreDto,
    enable_sound_notifications: bool,
    #[from(s.enable_proactive_conversation_starters.0)]
    enable_proactive_conversation_starters: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    disabled_skills: Option<Vec<String>>,
    enabled_skills: Option<Vec<String>>,
    title_llm_profile: Option<String>,
    #[schema(value_type = Option<String>, format = Password)]
    #[from(reveal.show(s.search_api_key.as_ref()))]
    search_api_key: Value,
    #[schema(value_type = Option<String>, format = Password)]
    #[from(reveal.show(s.sandbox_api_key.as_ref()))]
    sandbox_api_key: Value,
    max_budget_per_task: Option<f64>,
    max_budget_per_month: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    git_full_clone: bool,
    #[from(true)]
    v1_enabled: bool,
    /// The agent's complete document; `/settings/agent-schema` describes its fields.
    #[schema(value_type = Object)]
    #[from(s.agent_view(reveal, now))]
    agent_settings: Value,
    /// The conversation's complete document.
    #[schema(value_type = Object)]
    #[from(s.conversation_view())]
    conversation_settings: Value,
    #[schema(
        pattern = "^(NO_GROUPING|GROUP_BY_NEWEST|LEAST_RECENTLY_USED|FEWEST_CONVERSATIONS|ADD_TO_ANY)$"
    )]
    #[from(s.sandbox_grouping_strategy().to_owned())]
    sandbox_grouping_strategy: String,
    default_sandbox_spec_id: Option<String>,
    #[from(s.egress_allow.as_ref().map(|list| list.entries().to_vec()))]
    egress_allow: Option<Vec<String>>,
    #[from(SavedProfilesDto::of(&s.profiles, reveal, now))]
    llm_profiles: SavedProfilesDto,
    #[from(s.agent_profiles.active().map(|profile| profile.id.dashed()))]
    active_agent_profile_id: Option<String>,
    #[from(s.agent_profiles.active().map(|profile| profile.revision))]
    active_agent_profile_revision: Option<i64>,
    #[schema(value_type = Vec<Object>)]
    registered_marketplaces: Vec<Value>,
    #[schema(value_type = Vec<Object>)]
    #[from(Vec::new())]
    inherited_marketplaces: Vec<Value>,
}

/// Response of `GET /api/v1/settings`. Secrets are null; flags say whether they are set.
#[model(response = GETSettingsModel, from(s: &Settings, now: Timestamp))]
pub(crate) struct SettingsDto {
    #[serde(flatten)]
    #[from(SettingsFields::of(s, SecretVisibility::Hidden, now))]
    fields: SettingsFields,
    #[from(tokens_set(s))]
    provider_tokens_set: BTreeMap<&'static str, Option<String>>,
    #[from(s.agent.llm_api_key().is_some())]
    llm_api_key_set: bool,
    #[from(s.search_api_key.is_some())]
    search_api_key_set: bool,
}

impl SettingsDto {
    /// The response to a web front end, which offers no start while no key is set: a model that works without one counts.
    pub(crate) fn for_front_end(s: &Settings, now: Timestamp) -> Self {
        let plain = Self::of(s, now);
        Self {
            llm_api_key_set: plain.llm_api_key_set || s.has_usable_model(),
            ..plain
        }
    }
}

/// Response of `GET /api/v1/users/me`.
#[model(response = UserInfo, not_required)]
pub(crate) struct UserDto {
    #[serde(flatten)]
    fields: SettingsFields,
    /// The login name; with a key of the automations service the UUID of the user.
    id: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    llm: Option<LlmDto>,
    /// The organization in which the automations service acts, only with a key of that service. Not documented: no other client
    /// has such a key.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    membership: Option<MembershipDto>,
    /// MCP servers, only for a run of an automation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    mcp_config: Option<Value>,
}

/// The model with its key in plain text, only with `expose_secrets`. The SDK's cloud workspace reads it here.
// `Debug` is not derived: the type contains a key.
#[derive(Serialize, ToSchema)]
#[schema(as = UserLlm)]
#[expect(clippy::struct_field_names, reason = "the wire's names")]
struct LlmDto {
    #[schema(value_type = Option<String>)]
    llm_model: Value,
    /// The key in plain text.
    #[schema(value_type = Option<String>)]
    llm_api_key: Value,
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
    pub(crate) fn of(id: &UserId, s: &Settings, reveal: SecretVisibility, now: Timestamp) -> Self {
        let fields = SettingsFields::of(s, reveal, now);
        let field = |name: &str| fields.agent_settings["llm"][name].clone();
        let llm = (reveal == SecretVisibility::Clear).then(|| LlmDto {
            llm_model: field("model"),
            llm_api_key: field("api_key"),
            llm_base_url: field("base_url"),
        });
        Self {
            fields,
            id: id.to_string(),
            llm,
            membership: None,
            mcp_config: None,
        }
    }

    /// The same with models in the form in which a sandbox calls them: the one of the settings, and those of profiles.
    pub(crate) fn with_models(
        mut self,
        (own, profiles): &(Option<LlmConfig>, Vec<LlmProfile>),
    ) -> Self {
        let key_of = |llm: &LlmConfig| SecretVisibility::Clear.show(llm.api_key.as_ref());
        self.llm = own.as_ref().map(|llm| LlmDto {
            llm_model: llm.model.clone().into(),
            llm_api_key: key_of(llm),
            llm_base_url: llm.base_url.clone().into(),
        });
        for LlmProfile { name, llm } in profiles {
            let base_url = Value::from(llm.base_url.clone());
            self.fields
                .llm_profiles
                .replace(name, base_url, key_of(llm));
        }
        self
    }

    /// The same in the form that the automations service reads, and its runs.
    pub(crate) fn for_automations(
        self,
        membership: MembershipDto,
        mcp_config: Option<Value>,
    ) -> Self {
        Self {
            id: membership.user_id().to_string(),
            membership: Some(membership),
            mcp_config,
            ..self
        }
    }
}

/// The changes: fields of the response, and differences to its two documents. Unknown fields are ignored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettingsUpdate)]
pub(crate) struct SettingsUpdateDto {
    /// Merged into `agent_settings` key by key. An `mcp_config` in it replaces the stored one; with `X-Org-Id` it names the
    /// servers that change, and `null` removes one.
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
    enabled_skills: Option<Vec<String>>,
    title_llm_profile: Option<String>,
    /// Null or blank clears; the mask keeps.
    #[schema(format = Password)]
    search_api_key: Option<String>,
    /// Null or blank clears; the mask keeps.
    #[schema(format = Password)]
    sandbox_api_key: Option<String>,
    max_budget_per_task: Option<f64>,
    /// What the user may spend on models in a calendar month (UTC), in US dollars. Null or 0: no limit.
    max_budget_per_month: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    #[schema(required = false)]
    git_full_clone: bool,
    #[schema(
        required = false,
        pattern = "^(NO_GROUPING|GROUP_BY_NEWEST|LEAST_RECENTLY_USED|FEWEST_CONVERSATIONS|ADD_TO_ANY)$"
    )]
    sandbox_grouping_strategy: String,
    default_sandbox_spec_id: Option<String>,
    /// Hosts to which new sandboxes are limited, where the service limits what sandboxes reach; at most 100.
    egress_allow: Option<Vec<String>>,
    #[schema(value_type = Option<Vec<Object>>)]
    registered_marketplaces: Option<Vec<Value>>,
}

/// An error response with the member `error` instead of `detail`.
#[model(response)]
pub(crate) struct ErrorText {
    /// What is wrong, as a text.
    error: String,
}
