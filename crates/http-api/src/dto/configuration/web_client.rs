//! The configuration of web front ends, which they load before a user logs in; see `docs/reference/wire/web-client.md`.

use std::sync::LazyLock;

use domain::clock::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// ACP providers of the agent server's environment, written by `cargo xtask models`.
static ACP_AGENTS: LazyLock<Vec<AcpProviderDto>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../../config/acp-providers.json"))
        .unwrap_or_default()
});

/// Web hosts of git providers that have a public one.
const PROVIDER_HOSTS: [(&str, &str); 5] = [
    ("github", "github.com"),
    ("gitlab", "gitlab.com"),
    ("bitbucket", "bitbucket.org"),
    ("forgejo", "codeberg.org"),
    ("azure_devops", "dev.azure.com"),
];

/// The operator's configuration of web front ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebClient {
    /// The announced start of a maintenance.
    pub maintenance_start_time: Option<Timestamp>,
    /// Models that front ends warn of.
    pub faulty_models: Vec<String>,
    /// A text shown on top of every page.
    pub error_message: Option<String>,
    /// Whether front ends hide the settings of the model.
    pub hide_llm_settings: bool,
    /// Whether front ends hide the page of git providers.
    pub hide_integrations_page: bool,
    /// Whether front ends offer ACP agents.
    pub enable_acp: bool,
}

/// The configuration of a web front end.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WebClientConfig)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
pub struct WebClientDto {
    /// Always `oss`: front ends log in with a key, or without one in open mode.
    #[schema(pattern = "^oss$")]
    app_mode: &'static str,
    /// Always `null`: there is no analytics.
    #[schema(required)]
    posthog_client_key: Option<String>,
    feature_flags: FeatureFlagsDto,
    /// Always empty: providers are configured by each user.
    #[schema(value_type = Vec<crate::dto::enums::GitProviderSchema>)]
    providers_configured: Vec<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    maintenance_start_time: Option<Timestamp>,
    #[schema(required)]
    auth_url: Option<String>,
    #[schema(required)]
    recaptcha_site_key: Option<String>,
    faulty_models: Vec<String>,
    #[schema(required)]
    error_message: Option<String>,
    /// When the service started; the values above only change then.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(required)]
    github_app_slug: Option<String>,
    gitlab_enabled: bool,
    /// Web hosts by provider, in the order in which front ends list them.
    #[schema(value_type = BTreeMap<String, String>)]
    provider_default_hosts: Map<String, Value>,
    slack_enabled: bool,
    email_enabled: bool,
    acp_providers: Vec<AcpProviderDto>,
    #[schema(required)]
    jira_dc_oauth_host: Option<String>,
    jira_dc_service_account_managed: bool,
    #[schema(required)]
    jira_dc_service_account_email: Option<String>,
    #[schema(required)]
    jira_dc_service_account_config_error: Option<String>,
    /// Always `WebClientConfig`.
    #[schema(pattern = "^WebClientConfig$")]
    kind: &'static str,
}

/// Features that front ends show.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WebClientFeatureFlags)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
pub struct FeatureFlagsDto {
    enable_billing: bool,
    hide_llm_settings: bool,
    enable_jira: bool,
    enable_jira_dc: bool,
    enable_linear: bool,
    hide_users_page: bool,
    hide_billing_page: bool,
    hide_integrations_page: bool,
    hide_personal_workspaces: bool,
    allow_user_llm_configuration: bool,
    enable_acp: bool,
    #[schema(required, pattern = "^(cloud|self_hosted)$")]
    deployment_mode: Option<String>,
    enable_onboarding: bool,
    enable_automations: bool,
}

/// An ACP agent, as `acp_server` in the settings names it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ACPProvider)]
pub struct AcpProviderDto {
    key: String,
    display_name: String,
    /// The command that the agent server runs when the settings name none.
    default_command: Vec<String>,
    #[schema(required)]
    default_model: Option<String>,
    available_models: Vec<AcpModelDto>,
    /// The environment variable for its key.
    #[schema(required)]
    api_key_env_var: Option<String>,
    #[schema(required)]
    base_url_env_var: Option<String>,
}

/// A model of such an agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ACPModel)]
pub struct AcpModelDto {
    id: String,
    label: String,
}

impl WebClientDto {
    /// Converts the operator's configuration, valid since `updated_at`.
    pub fn of(config: &WebClient, updated_at: Timestamp) -> Self {
        Self {
            app_mode: "oss",
            posthog_client_key: None,
            feature_flags: FeatureFlagsDto::of(config),
            providers_configured: Vec::new(),
            maintenance_start_time: config.maintenance_start_time,
            auth_url: None,
            recaptcha_site_key: None,
            faulty_models: config.faulty_models.clone(),
            error_message: config.error_message.clone(),
            updated_at,
            github_app_slug: None,
            gitlab_enabled: false,
            provider_default_hosts: PROVIDER_HOSTS
                .map(|(provider, host)| (provider.to_owned(), host.into()))
                .into_iter()
                .collect(),
            slack_enabled: false,
            email_enabled: false,
            acp_providers: ACP_AGENTS.clone(),
            jira_dc_oauth_host: None,
            jira_dc_service_account_managed: false,
            jira_dc_service_account_email: None,
            jira_dc_service_account_config_error: None,
            kind: "WebClientConfig",
        }
    }
}

impl FeatureFlagsDto {
    /// Turns implemented features on, and all others off.
    fn of(config: &WebClient) -> Self {
        Self {
            enable_billing: false,
            hide_llm_settings: config.hide_llm_settings,
            enable_jira: false,
            enable_jira_dc: false,
            enable_linear: false,
            hide_users_page: false,
            hide_billing_page: false,
            hide_integrations_page: config.hide_integrations_page,
            hide_personal_workspaces: false,
            allow_user_llm_configuration: !config.hide_llm_settings,
            enable_acp: config.enable_acp,
            deployment_mode: None,
            enable_onboarding: false,
            enable_automations: false,
        }
    }
}

/// The configuration of front ends of the 1.3 line.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LegacyWebClientConfig)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct LegacyWebClientDto {
    app_mode: &'static str,
    /// Always empty.
    github_client_id: &'static str,
    /// Always empty.
    posthog_client_key: &'static str,
    feature_flags: LegacyFeatureFlagsDto,
}

/// Features that front ends of the 1.3 line show.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LegacyFeatureFlags)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct LegacyFeatureFlagsDto {
    enable_billing: bool,
    hide_llm_settings: bool,
}

impl From<&WebClient> for LegacyWebClientDto {
    fn from(config: &WebClient) -> Self {
        Self {
            app_mode: "oss",
            github_client_id: "",
            posthog_client_key: "",
            feature_flags: LegacyFeatureFlagsDto {
                enable_billing: false,
                hide_llm_settings: config.hide_llm_settings,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_acp_providers_match_the_settings() {
        let keys: Vec<_> = ACP_AGENTS.iter().map(|agent| agent.key.as_str()).collect();
        assert_eq!(keys, ["claude-code", "codex", "gemini-cli"]);
    }
}
