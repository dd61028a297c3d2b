//! The configuration of web front ends, which they load before a user logs in; see `docs/reference/wire/web-client.md`.

use std::sync::LazyLock;

use domain::clock::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::decode::model;

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
#[model(response = WebClientConfig, from(config: &WebClient, updated_at: Timestamp))]
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
pub(crate) struct WebClientDto {
    /// Always `oss`: front ends log in with a key, or without one in open mode.
    #[schema(pattern = "^oss$")]
    #[from("oss")]
    app_mode: &'static str,
    /// Always `null`: there is no analytics.
    #[from(None)]
    posthog_client_key: Option<String>,
    #[from(config.into())]
    feature_flags: FeatureFlagsDto,
    /// Always empty: providers are configured by each user.
    #[schema(value_type = Vec<crate::dto::enums::GitProviderSchema>)]
    #[from(Vec::new())]
    providers_configured: Vec<String>,
    maintenance_start_time: Option<Timestamp>,
    #[from(None)]
    auth_url: Option<String>,
    #[from(None)]
    recaptcha_site_key: Option<String>,
    faulty_models: Vec<String>,
    error_message: Option<String>,
    /// When the service started; the values above only change then.
    #[from(updated_at)]
    updated_at: Timestamp,
    #[from(None)]
    github_app_slug: Option<String>,
    #[from(false)]
    gitlab_enabled: bool,
    /// Web hosts by provider, in the order in which front ends list them.
    #[schema(value_type = BTreeMap<String, String>)]
    #[from(provider_hosts())]
    provider_default_hosts: Map<String, Value>,
    #[from(false)]
    slack_enabled: bool,
    #[from(false)]
    email_enabled: bool,
    #[from(ACP_AGENTS.clone())]
    acp_providers: Vec<AcpProviderDto>,
    #[from(None)]
    jira_dc_oauth_host: Option<String>,
    #[from(false)]
    jira_dc_service_account_managed: bool,
    #[from(None)]
    jira_dc_service_account_email: Option<String>,
    #[from(None)]
    jira_dc_service_account_config_error: Option<String>,
    /// Always `WebClientConfig`.
    #[schema(pattern = "^WebClientConfig$")]
    #[from("WebClientConfig")]
    kind: &'static str,
}

impl WebClientDto {
    /// Says whether the service has automations.
    pub(crate) fn with_automations(mut self, are_enabled: bool) -> Self {
        self.feature_flags.enable_automations = are_enabled;
        self
    }
}

/// Features that front ends show.
#[model(response = WebClientFeatureFlags, from(config: &WebClient))]
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape")]
pub(crate) struct FeatureFlagsDto {
    #[from(false)]
    enable_billing: bool,
    hide_llm_settings: bool,
    #[from(false)]
    enable_jira: bool,
    #[from(false)]
    enable_jira_dc: bool,
    #[from(false)]
    enable_linear: bool,
    #[from(false)]
    hide_users_page: bool,
    #[from(false)]
    hide_billing_page: bool,
    hide_integrations_page: bool,
    #[from(false)]
    hide_personal_workspaces: bool,
    #[from(!config.hide_llm_settings)]
    allow_user_llm_configuration: bool,
    enable_acp: bool,
    #[schema(pattern = "^(cloud|self_hosted)$")]
    #[from(None)]
    deployment_mode: Option<String>,
    #[from(false)]
    enable_onboarding: bool,
    #[from(false)]
    enable_automations: bool,
}

/// An ACP agent, as `acp_server` in the settings names it.
#[model(response = ACPProvider)]
#[derive(Clone, Deserialize)]
pub(crate) struct AcpProviderDto {
    key: String,
    display_name: String,
    /// The command that the agent server runs when the settings name none.
    default_command: Vec<String>,
    default_model: Option<String>,
    available_models: Vec<AcpModelDto>,
    /// The environment variable for its key.
    api_key_env_var: Option<String>,
    base_url_env_var: Option<String>,
}

/// A model of such an agent.
#[model(response = ACPModel)]
#[derive(Clone, Deserialize)]
pub(crate) struct AcpModelDto {
    id: String,
    label: String,
}

fn provider_hosts() -> Map<String, Value> {
    let hosts = PROVIDER_HOSTS.map(|(provider, host)| (provider.to_owned(), host.into()));
    hosts.into_iter().collect()
}

/// The configuration of front ends of the 1.3 line.
#[model(response = LegacyWebClientConfig, from(config: &WebClient))]
#[derive(Clone)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) struct LegacyWebClientDto {
    #[from("oss")]
    app_mode: &'static str,
    /// Always empty.
    #[from("")]
    github_client_id: &'static str,
    /// Always empty.
    #[from("")]
    posthog_client_key: &'static str,
    #[from(config.into())]
    feature_flags: LegacyFeatureFlagsDto,
}

/// Features that front ends of the 1.3 line show.
#[model(response = LegacyFeatureFlags, from(config: &WebClient))]
#[derive(Clone)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) struct LegacyFeatureFlagsDto {
    #[from(false)]
    enable_billing: bool,
    hide_llm_settings: bool,
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
