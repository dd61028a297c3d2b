//! The process of the automations service that this service runs: its package, settings and walls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use domain::id::{HostId, OwnerId, SandboxId, SpecId};
use domain::sandbox::{PrepareProgress, SandboxLaunch};
use sandbox_process::{
    AgentServerSource, Confinement, ForkServerMode, InstallEnvironment, NetworkPolicy,
    ProcessConfig, ProcessLimits, ProvisionConfig, PythonProgram, SERVICE_ADDRESS,
};
use sandbox_provider::short_digest;
use secrecy::{ExposeSecret as _, SecretString};
use settings::EnvVariables;

use crate::config::Config;

/// The name of the process among those of its backend.
pub(super) const NAME: &str = "automations";
/// The directory of its files, below the data directory.
const DIRECTORY: &str = "automations";

pub(super) fn source(
    config: &Config,
    variables: &EnvVariables,
) -> anyhow::Result<AgentServerSource> {
    match &config.automations.command {
        Some(command) => Ok(AgentServerSource::Command(command.clone())),
        None => Ok(AgentServerSource::installed(provision(config, variables))?),
    }
}

/// All settings of the process. Its session key depends on them, so that a running process is restarted after a change.
pub(super) fn settings_text(process: &ProcessConfig) -> String {
    let settings = process.extra_env.iter();
    let settings = settings.map(|(name, value)| format!("{name}={}\n", value.expose_secret()));
    let settings: String = settings.collect();
    format!("{:?}\n{settings}", process.agent_server)
}

pub(super) fn launch(
    session_key: SecretString,
    internal_url: &str,
) -> anyhow::Result<SandboxLaunch> {
    Ok(SandboxLaunch {
        id: SandboxId::parse(NAME)?,
        owner: OwnerId::parse(NAME)?,
        spec: SpecId::parse(NAME)?,
        secret_key: session_key.clone(),
        session_key,
        webhook_url: internal_url.parse()?,
        cors_origins: Vec::new(),
        dormant: false,
        progress: PrepareProgress::silent(),
    })
}

pub(super) fn process(
    config: &Config,
    variables: &EnvVariables,
    host: &HostId,
    (internal_url, service_key, values_key, listener): (
        &str,
        &SecretString,
        &SecretString,
        &Arc<OnceLock<SocketAddr>>,
    ),
) -> anyhow::Result<ProcessConfig> {
    // Not the host of sandboxes, whose backend ends processes that it does not know.
    let instance = short_digest(&[host.as_str().as_bytes()]);
    let instance = HostId::parse(format!("automations-{instance}"))?;
    let source = source(config, variables)?;
    let mut process = ProcessConfig::new(config.data_dir.join(DIRECTORY), instance, source);
    let path = settings::variable(variables, "PATH").and_then(|path| path.to_str());
    if let Some(path) = path {
        path.clone_into(&mut process.path);
    }
    process.extra_env = environment(internal_url, service_key, values_key);
    process.fork_server = ForkServerMode::Off;
    process.confinement = Some(Confinement {
        search_path: process.path.clone(),
        readable_paths: Vec::new(),
        writable_paths: Vec::new(),
        limits: ProcessLimits::default(),
        network: NetworkPolicy::None,
        reachable_networks: Vec::new(),
        callbacks: Arc::clone(listener),
        egress: None,
    });
    Ok(process)
}

/// The installation of the package, by the settings of the agent server's.
fn provision(config: &Config, variables: &EnvVariables) -> ProvisionConfig {
    let settings = &config.automations;
    let environment = InstallEnvironment::pick(variables.iter().cloned());
    let defaults = ProvisionConfig::new(PythonProgram::Automations, &config.data_dir, environment);
    ProvisionConfig {
        version: settings.version.clone().unwrap_or(defaults.version),
        python: settings.python.clone(),
        index_url: settings.index_url.clone(),
        proxy: settings.proxy.clone(),
        wheels: settings.wheels.clone(),
        ..defaults
    }
}

/// Settings of openhands-automation 1.25 that are the same everywhere. Its files are in its workspace, which is `/workspace`
/// inside. `deploy/automations/Dockerfile` repeats them.
const SETTINGS: [(&str, &str); 15] = [
    (
        "AUTOMATION_DB_URL",
        "sqlite+aiosqlite:////workspace/automations.db",
    ),
    ("FILE_STORE", "local"),
    ("LOCAL_STORAGE_PATH", "/workspace/files"),
    // A poll for due automations takes 50 of them. By default there is one in a minute, and in ten seconds one for runs.
    ("AUTOMATION_SCHEDULER_INTERVAL_SECONDS", "10"),
    ("AUTOMATION_DISPATCHER_INTERVAL_SECONDS", "2"),
    // A sandbox is there in a second.
    ("AUTOMATION_SANDBOX_POLL_INTERVAL", "1"),
    // At a cap, runs ask again for two hours; then this service says that they are skipped.
    ("AUTOMATION_RATE_LIMIT_MIN_WAIT", "5"),
    ("AUTOMATION_RATE_LIMIT_MAX_WAIT", "15"),
    ("AUTOMATION_RATE_LIMIT_MAX_RETRIES", "2000"),
    // That long a run may have no sandbox; a sandbox that does not start ends it before.
    ("AUTOMATION_SANDBOX_READY_TIMEOUT", "7500"),
    // No telemetry.
    ("AUTOMATION_POSTHOG_API_KEY", ""),
    // Otherwise a line for each column at each start.
    ("LOG_LEVEL", "WARNING"),
    ("AUTOMATION_LOG_LEVEL", "INFO"),
    // All calls go through the proxy, which is this service.
    ("NO_PROXY", ""),
    ("no_proxy", ""),
];

fn environment(
    internal_url: &str,
    service_key: &SecretString,
    values_key: &SecretString,
) -> BTreeMap<String, SecretString> {
    let proxy = &*format!("http://{SERVICE_ADDRESS}");
    let own = [
        ("AUTOMATION_OPENHANDS_API_BASE_URL", internal_url),
        ("AUTOMATION_BASE_URL", internal_url),
        ("AUTOMATION_SERVICE_KEY", service_key.expose_secret()),
        // Signs the tokens of runs for `/v1/kv`, and encrypts what they keep there.
        ("AUTOMATION_KV_SECRET", values_key.expose_secret()),
        ("HTTP_PROXY", proxy),
        ("http_proxy", proxy),
    ];
    let all = SETTINGS.into_iter().chain(own);
    all.map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_image_has_the_same_settings() {
        let image = include_str!("../../../../deploy/automations/Dockerfile");
        for (name, value) in SETTINGS {
            let line = format!("{name}={}", value.replace("/workspace", "/data"));
            let is_set = |it: &str| it.trim_start_matches("ENV").trim_matches([' ', '\\']) == line;
            assert!(image.lines().any(is_set), "{line}");
        }
        let data = Path::new("/data");
        let package = ProvisionConfig::new(
            PythonProgram::Automations,
            data,
            InstallEnvironment::pick(Vec::<(String, String)>::new()),
        );
        let package = format!("openhands-automation=={} ", package.version);
        assert!(image.contains(&package), "{package}");
    }
}
