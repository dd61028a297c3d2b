//! The settings of the legacy API; see `docs/reference/wire/legacy.md`.

use std::collections::BTreeMap;

use application::settings::{LegacySettings, Settings};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::decode::{Decode, FieldError, FieldErrors, Object, Path, Sensitive};
use crate::dto::configuration::mcp::{McpConfigDto, McpConfigInput};
use crate::dto::configuration::settings::{Empty, tokens_set};

/// `secrets_store` of the legacy response: its members are always empty objects.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = UserSecrets)]
pub struct UserSecretsDto {
    provider_tokens: Empty,
    custom_secrets: Empty,
}

/// The settings of the legacy operations.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the shape of the interface document"
)]
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LegacySettings)]
pub struct LegacySettingsDto {
    language: Option<String>,
    agent: Option<String>,
    max_iterations: Option<i64>,
    security_analyzer: Option<String>,
    confirmation_mode: Option<bool>,
    llm_model: Option<String>,
    /// Always null; see `llm_api_key_set`.
    #[schema(format = Password)]
    llm_api_key: Option<String>,
    llm_base_url: Option<String>,
    remote_runtime_resource_factor: Option<i64>,
    #[schema(required = false)]
    secrets_store: UserSecretsDto,
    #[schema(required = false, default = true)]
    enable_default_condenser: bool,
    #[schema(required = false, default = false)]
    enable_sound_notifications: bool,
    #[schema(required = false, default = true)]
    enable_proactive_conversation_starters: bool,
    #[schema(required = false, default = true)]
    enable_solvability_analysis: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    /// Absent if never set. Keys and environments are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = McpConfigDto, required = false)]
    mcp_config: Option<Value>,
    /// Always null; see `search_api_key_set`.
    #[schema(format = Password)]
    search_api_key: Option<String>,
    /// Always null.
    #[schema(format = Password)]
    sandbox_api_key: Option<String>,
    max_budget_per_task: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
    /// Always true.
    #[schema(required = false)]
    v1_enabled: bool,
    /// Provider → host, one entry per stored token; a host of null is the provider's own.
    #[schema(required = false)]
    provider_tokens_set: BTreeMap<&'static str, Option<String>>,
    llm_api_key_set: bool,
    #[schema(required = false, default = false)]
    search_api_key_set: bool,
}

/// The changes: absent fields stay. Null resets a field, except `llm_model`, `llm_api_key`, `llm_base_url`,
/// `search_api_key`, `sandbox_api_key`, `mcp_config` and `user_consents_to_analytics`, which stay. Unknown fields are ignored.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the shape of the interface document"
)]
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LegacySettingsUpdate)]
pub struct LegacySettingsUpdateDto {
    language: Option<String>,
    agent: Option<String>,
    max_iterations: Option<i64>,
    security_analyzer: Option<String>,
    confirmation_mode: Option<bool>,
    llm_model: Option<String>,
    /// Blank clears; the mask keeps.
    #[schema(format = Password)]
    llm_api_key: Option<String>,
    llm_base_url: Option<String>,
    remote_runtime_resource_factor: Option<i64>,
    #[schema(required = false)]
    enable_default_condenser: bool,
    #[schema(required = false)]
    enable_sound_notifications: bool,
    #[schema(required = false)]
    enable_proactive_conversation_starters: bool,
    #[schema(required = false)]
    enable_solvability_analysis: bool,
    user_consents_to_analytics: Option<bool>,
    sandbox_base_container_image: Option<String>,
    sandbox_runtime_container_image: Option<String>,
    mcp_config: Option<McpConfigDto>,
    /// Blank clears; the mask keeps, as does `""` beside `search_api_key_set: true` (the 1.3 settings page).
    #[schema(format = Password)]
    search_api_key: Option<String>,
    /// Blank clears; the mask keeps.
    #[schema(format = Password)]
    sandbox_api_key: Option<String>,
    max_budget_per_task: Option<f64>,
    email: Option<String>,
    email_verified: Option<bool>,
    git_user_name: Option<String>,
    git_user_email: Option<String>,
}

impl From<&Settings> for LegacySettingsDto {
    fn from(s: &Settings) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            language: s.language.clone(),
            agent: owned(s.legacy_agent()),
            max_iterations: s.legacy_max_iterations(),
            security_analyzer: owned(s.legacy_security_analyzer()),
            confirmation_mode: s.legacy_confirmation_mode(),
            llm_model: owned(s.agent.llm_model()),
            llm_api_key: None,
            llm_base_url: owned(s.agent.llm_base_url()),
            remote_runtime_resource_factor: s.remote_runtime_resource_factor,
            secrets_store: UserSecretsDto::default(),
            enable_default_condenser: s.legacy_default_condenser(),
            enable_sound_notifications: s.enable_sound_notifications,
            enable_proactive_conversation_starters: s.enable_proactive_conversation_starters,
            enable_solvability_analysis: s.enable_solvability_analysis,
            user_consents_to_analytics: s.user_consents_to_analytics,
            sandbox_base_container_image: s.sandbox_base_container_image.clone(),
            sandbox_runtime_container_image: s.sandbox_runtime_container_image.clone(),
            mcp_config: s.legacy_mcp(),
            search_api_key: None,
            sandbox_api_key: None,
            max_budget_per_task: s.max_budget_per_task,
            email: s.email.clone(),
            email_verified: s.email_verified,
            git_user_name: s.git_user_name.clone(),
            git_user_email: s.git_user_email.clone(),
            v1_enabled: true,
            provider_tokens_set: tokens_set(s),
            llm_api_key_set: s.agent.llm_api_key().is_some(),
            search_api_key_set: s.search_api_key.is_some(),
        }
    }
}

/// Body of the legacy save.
#[derive(Debug, Clone)]
pub struct LegacySettingsInput(pub LegacySettings);

impl Decode for LegacySettingsInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let o = &mut object;
        let language = o.patch("language");
        let agent = o.patch("agent");
        let max_iterations = o.patch("max_iterations");
        let security_analyzer = o.patch("security_analyzer");
        let confirmation_mode = o.patch("confirmation_mode");
        let llm_model = o.optional("llm_model");
        let llm_api_key = o.optional("llm_api_key");
        let llm_base_url = o.optional("llm_base_url");
        let resource_factor = o.patch("remote_runtime_resource_factor");
        let store = secrets_store(o);
        let condenser = flag(o, "enable_default_condenser");
        let sound = flag(o, "enable_sound_notifications");
        let starters = flag(o, "enable_proactive_conversation_starters");
        let solvability = flag(o, "enable_solvability_analysis");
        let analytics = o.optional("user_consents_to_analytics");
        let base_image = o.patch("sandbox_base_container_image");
        let runtime_image = o.patch("sandbox_runtime_container_image");
        let mcp = o.optional::<McpConfigInput>("mcp_config");
        let search_api_key = o.optional("search_api_key");
        // An echo of the response, which is not validated: only true has an effect.
        let shown_as_set =
            o.default::<Sensitive<Value>>("search_api_key_set", || Sensitive(json!(false)));
        let sandbox_api_key = o.optional("sandbox_api_key");
        let budget = o.patch("max_budget_per_task");
        let email = o.patch("email");
        let email_verified = o.patch("email_verified");
        let git_user_name = o.patch("git_user_name");
        let git_user_email = o.patch("git_user_email");
        store?;
        Some(Self(LegacySettings {
            language: language?,
            agent: agent?,
            max_iterations: max_iterations?,
            security_analyzer: security_analyzer?,
            confirmation_mode: confirmation_mode?,
            llm_model: llm_model?,
            llm_api_key: llm_api_key?,
            llm_base_url: llm_base_url?,
            remote_runtime_resource_factor: resource_factor?,
            enable_default_condenser: condenser?,
            enable_sound_notifications: sound?,
            enable_proactive_conversation_starters: starters?,
            enable_solvability_analysis: solvability?,
            user_consents_to_analytics: analytics?,
            sandbox_base_container_image: base_image?,
            sandbox_runtime_container_image: runtime_image?,
            mcp_config: mcp?.map(|mcp| mcp.0),
            search_api_key: search_api_key?,
            search_api_key_set: shown_as_set.is_some_and(|shown| shown.0 == true),
            sandbox_api_key: sandbox_api_key?,
            max_budget_per_task: budget?,
            email: email?,
            email_verified: email_verified?,
            git_user_name: git_user_name?,
            git_user_email: git_user_email?,
        }))
    }
}

/// Reads a flag, which may be absent but not null.
#[expect(
    clippy::option_option,
    reason = "the readers' convention: None is a noted error"
)]
fn flag<M: Decode>(object: &mut Object<'_, M>, key: &'static str) -> Option<Option<bool>> {
    if object.has(key) {
        object.required::<bool>(key).map(Some)
    } else {
        Some(None)
    }
}

/// Clients send back what they received. Only an object is accepted; its content has no effect.
fn secrets_store<M: Decode>(object: &mut Object<'_, M>) -> Option<()> {
    let value = object.default::<Value>("secrets_store", || json!({}))?;
    if !value.is_object() {
        let fault = FieldError::value_error("Secrets must be initialized with a dictionary");
        object.add_error("secrets_store", fault);
        return None;
    }
    Some(())
}
