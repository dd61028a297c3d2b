//! The configuration: `config/default.toml` (embedded), overridden by a file, overridden by the environment.
//!
//! The only module that hands the environment to `settings`, which reads it. One struct per section. Problems are collected
//! and reported together, by key and source, never with the value.

mod sections;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_provider::{BackendFeatures, ConfiguredBackend, SandboxProvider};
use secrecy::ExposeSecret as _;
pub(crate) use sections::auth::{
    AuthModeSetting, AuthSettings, FIRST_USER, SecretsSettings, first_user,
};
pub(crate) use sections::automations::{AutomationsElsewhere, AutomationsSettings};
pub(crate) use sections::broker::BrokerSettings;
pub(crate) use sections::egress::EgressSettings;
pub(crate) use sections::git::GitSettings;
pub(crate) use sections::http::{HttpSettings, reachable};
pub(crate) use sections::identity_providers::OidcSettings;
pub(crate) use sections::log::{LogFormat, LogSettings};
pub(crate) use sections::mail::{MailSettings, MailTlsSetting};
pub(crate) use sections::metrics::MetricsSettings;
pub(crate) use sections::sandbox::{SandboxSettings, StartSettings};
pub(crate) use sections::storage::StorageSettings;
pub(crate) use sections::web::{WebSettings, registry};
use settings::{
    CONFIG_VARIABLE, ConfigFingerprints, EnvVariables, SettingLayers, SettingReader,
    SettingSection, variable,
};
pub(crate) use settings::{parse_duration, without_password};

use sections::{quota, retention, web_client};

pub(crate) type SandboxProviders = [&'static dyn SandboxProvider];
/// The backends of this program with their settings, in the order in which `auto` tries them.
pub(crate) type Backends = [Arc<dyn ConfiguredBackend>];

/// The effective configuration. Its `Debug` shows no secret: they are `secrecy` types or hide themselves.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) http: HttpSettings,
    pub(crate) storage: StorageSettings,
    pub(crate) auth: AuthSettings,
    pub(crate) secrets: SecretsSettings,
    pub(crate) sandbox: SandboxSettings,
    pub(crate) backends: Vec<Arc<dyn ConfiguredBackend>>,
    pub(crate) start: StartSettings,
    pub(crate) git: GitSettings,
    /// `None`: no mail is sent.
    pub(crate) mail: Option<MailSettings>,
    pub(crate) broker: BrokerSettings,
    pub(crate) egress: EgressSettings,
    /// Absolute paths.
    pub(crate) skill_directories: Vec<PathBuf>,
    /// Whether agents get the service's own MCP server.
    pub(crate) mcp_in_conversations: bool,
    pub(crate) retention: application::Retention,
    pub(crate) quota: domain::user::usage::QuotaLimits,
    pub(crate) log: LogSettings,
    pub(crate) telemetry: Option<telemetry::Config>,
    pub(crate) metrics: MetricsSettings,
    pub(crate) web: WebSettings,
    pub(crate) automations: AutomationsSettings,
    pub(crate) web_client: http_api::WebClient,
    file: Option<PathBuf>,
    /// Hashes of the values, to find what a reload changes.
    fingerprints: ConfigFingerprints,
    effective_text: String,
}

/// The problems of a configuration, one per line.
#[derive(Debug, thiserror::Error)]
#[error("the configuration is invalid:\n  - {}", .0.join("\n  - "))]
pub(crate) struct ConfigError(Vec<String>);

impl ConfigError {
    pub(crate) fn on_one_line(&self) -> String {
        self.0.join("; ")
    }
}

impl Config {
    /// Reads `file` (otherwise the one in `WORKSPACE_CONFIG`) and the variables.
    pub(crate) fn load(
        providers: &SandboxProviders,
        file: Option<&Path>,
        variables: &EnvVariables,
    ) -> Result<Self, ConfigError> {
        let named = variable(variables, CONFIG_VARIABLE).map(PathBuf::from);
        let file = file.or(named.as_deref());
        let layers = SettingLayers::load(Self::sections(providers), file, variables);
        let reader = SettingReader::new(&layers, variables);
        let config = Self {
            file: file.map(Path::to_owned),
            ..Self::read(providers, &reader, &layers, variables)
        };
        let problems = reader.into_problems();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError(problems))
        }
    }

    /// What the backends and the service itself add to the mechanism of the configuration.
    fn sections(providers: &SandboxProviders) -> Vec<SettingSection> {
        let backends = providers.iter().map(|it| it.section());
        backends
            .chain([sections::identity_providers::SECTION])
            .collect()
    }

    fn read(
        providers: &SandboxProviders,
        reader: &SettingReader<'_>,
        layers: &SettingLayers,
        variables: &EnvVariables,
    ) -> Self {
        let data_dir = reader
            .optional_path("data_dir")
            .or_else(|| default_data_dir(variables));
        let data_dir = data_dir.unwrap_or_else(|| {
            let problem =
                "is required: without $HOME there is no default data directory. Set WORKSPACE_DATA_DIR";
            reader.problem("data_dir", problem);
            PathBuf::new()
        });
        let http = HttpSettings::read(reader);
        let storage = StorageSettings::read(reader, &data_dir);
        let backends: Vec<_> = providers.iter().map(|it| it.configure(reader)).collect();
        let derived = [
            ("data_dir", data_dir.display().to_string()),
            ("storage.url", without_password(storage.url.expose_secret())),
            ("http.public_url", http.public_url(http.bind).to_string()),
        ];
        Self {
            auth: AuthSettings::read(reader, &http),
            secrets: SecretsSettings::read(reader, &storage),
            sandbox: SandboxSettings::read(reader, &storage, &backends),
            backends,
            start: StartSettings::read(reader),
            git: GitSettings::read(reader),
            mail: MailSettings::read(reader),
            broker: BrokerSettings::read(reader),
            egress: EgressSettings::read(reader),
            skill_directories: reader.parsed_list(
                "skills.directories",
                "paths of directories",
                |path| std::path::absolute(path).ok(),
            ),
            mcp_in_conversations: reader.switch("mcp.in_conversations"),
            retention: retention::read(reader),
            quota: quota::read(reader),
            log: LogSettings::read(reader),
            telemetry: sections::telemetry::read(reader),
            metrics: MetricsSettings::read(reader, &http),
            web: WebSettings::read(reader),
            automations: AutomationsSettings::read(reader, &http),
            web_client: web_client::read(reader),
            file: None,
            fingerprints: ConfigFingerprints::of(layers),
            effective_text: settings::show(layers, &derived),
            data_dir,
            http,
            storage,
        }
    }

    pub(crate) fn reload(
        &self,
        providers: &SandboxProviders,
        variables: &EnvVariables,
    ) -> Result<Self, ConfigError> {
        Self::load(providers, self.file.as_deref(), variables)
    }

    /// Keys whose values differ, sorted.
    pub(crate) fn changed_keys(&self, other: &Self) -> Vec<String> {
        self.fingerprints.changed_keys(&other.fingerprints)
    }

    pub(crate) fn backend(&self, name: &str) -> Option<&dyn ConfiguredBackend> {
        let mut backends = self.backends.iter().map(AsRef::as_ref);
        backends.find(|backend| backend.features().name == name)
    }

    pub(crate) fn kept_warm(&self, features: &BackendFeatures) -> u32 {
        self.sandbox.warm.unwrap_or(features.warm)
    }

    /// The effective configuration as TOML, with secrets redacted.
    pub(crate) fn as_toml(&self) -> &str {
        &self.effective_text
    }
}

/// `$XDG_DATA_HOME/agent-workspace`, or `~/.local/share/agent-workspace`.
fn default_data_dir(variables: &EnvVariables) -> Option<PathBuf> {
    // The XDG specification: relative paths are invalid and must be ignored.
    let absolute = |name: &str| {
        variable(variables, name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")))?;
    Some(base.join("agent-workspace"))
}
