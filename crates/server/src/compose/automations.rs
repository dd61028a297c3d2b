//! The automations service: an unmodified Python package that this service installs and runs as a confined process.
//!
//! A process backend of its own runs it, with one sandbox. So it starts, is adopted after a crash of the service, and is
//! confined as sandboxes are. Its network has one way out: a listener of this service, which is its HTTP proxy. So it reaches
//! this service at the URL by which the sandboxes of its runs do, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use agent_client::AutomationsClient;
use domain::encryption::vault::Fingerprints as _;
use domain::error::chain;
use domain::id::{ApiKeyId, HostId, OwnerId, SandboxId, SpecId};
use domain::sandbox::{PrepareProgress, SandboxError, SandboxLaunch};
use http_api::{AutomationsSite, AutomationsStatus, Gateway, GatewayLimits};
use keyring::InstallationKey;
use sandbox_process::{
    AgentServerSource, Confinement, ForkServerMode, InstallEnvironment, NetworkPolicy,
    ProcessConfig, ProcessLimits, ProcessSandboxes, ProvisionConfig, PythonProgram,
    SERVICE_ADDRESS,
};
use sandbox_provider::short_digest;
use secrecy::{ExposeSecret as _, SecretString};
use settings::EnvVariables;
use tokio::sync::{Notify, mpsc, watch};
use url::Url;

use crate::config::Config;
use crate::lifecycle::automations::{AutomationsRunner, STARTING};
use crate::listeners::callback::CallbackRoute;

/// The name of the process among those of its backend.
const NAME: &str = "automations";
/// The directory of its files, below the data directory.
const DIRECTORY: &str = "automations";
/// Ended runs whose sandboxes are not looked at yet. Those of more runs are found by their age.
const MAX_ENDED_RUNS: usize = 1_000;
/// Largest body: its uploads have at most 1 MiB.
const MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;

/// The automations service of this installation.
pub(crate) struct Automations {
    pub(crate) runner: Arc<AutomationsRunner>,
    pub(crate) site: AutomationsSite,
    /// The runs that report their end.
    pub(crate) ended: mpsc::Receiver<ApiKeyId>,
    /// Set to the address of the listener for it.
    pub(crate) listener: Arc<OnceLock<SocketAddr>>,
}

/// The automations service; `None` where there is none.
pub(crate) async fn open_automations(
    (config, variables, host, fingerprints): (&Config, &EnvVariables, &HostId, &InstallationKey),
    route: &CallbackRoute,
) -> anyhow::Result<Option<Automations>> {
    if !config.automations.is_enabled {
        return Ok(None);
    }
    let internal_url = route.base();
    if let Err(cause) = check(config, internal_url) {
        tracing::info!("automations are off: {cause}");
        return Ok(None);
    }
    let secret = |purpose: &str, text: &str| {
        SecretString::from(fingerprints.fingerprint(purpose, text.as_bytes()))
    };
    let service_key = secret("automations-service-key", "");
    let values_key = secret("automations-values-key", "");
    let listener = Arc::<OnceLock<SocketAddr>>::default();
    let process = process(
        config,
        variables,
        host,
        (internal_url, &service_key, &values_key, &listener),
    )?;
    let session_key = secret("automations-session-key", &settings_text(&process));
    let is_in_use = process.data_dir.join("sandboxes").join(NAME).exists();
    let opened = ProcessSandboxes::new(process).await;
    let warn = |error: &SandboxError| tracing::warn!(error = %chain(error), "automations are off: their process cannot be prepared");
    // Everything else works without it, for example where no directory for sockets is writable.
    let Ok(backend) = opened.map(Arc::new).inspect_err(warn) else {
        return Ok(None);
    };
    let (status, receiver) = watch::channel(AutomationsStatus::Unavailable(STARTING.to_owned()));
    let wanted = Arc::<Notify>::default();
    let (run_ends, ended) = mpsc::channel(MAX_ENDED_RUNS);
    let client = AutomationsClient::new(Arc::clone(&backend) as _, SandboxId::parse(NAME)?);
    let site = AutomationsSite {
        status: receiver,
        wanted: Arc::clone(&wanted),
        run_ends,
        name: NAME.into(),
        gateway: Gateway::new(limits(), Arc::clone(&backend) as _),
        service_key,
        internal_url: internal_url.to_owned(),
    };
    let runner = AutomationsRunner {
        lifecycle: Arc::clone(&backend) as _,
        client,
        backend,
        launch: launch(session_key, internal_url)?,
        clock: super::clock(),
        status,
        process_start: Mutex::default(),
        wanted,
        is_stopping: AtomicBool::new(false),
        is_in_use,
    };
    Ok(Some(Automations {
        runner: Arc::new(runner),
        site,
        ended,
        listener,
    }))
}

/// What `doctor` says about it. The error says why there are no automations.
pub(crate) async fn describe_automations(
    config: &Config,
    variables: &EnvVariables,
    route: &CallbackRoute,
) -> anyhow::Result<String> {
    if !config.automations.is_enabled {
        return Ok("off".to_owned());
    }
    let internal_url = route.base();
    check(config, internal_url)?;
    let path = settings::variable(variables, "PATH").and_then(|path| path.to_str());
    let source = source(config, variables)?;
    source.describe(path.unwrap_or_default()).await
}

fn source(config: &Config, variables: &EnvVariables) -> anyhow::Result<AgentServerSource> {
    match &config.automations.command {
        Some(command) => Ok(AgentServerSource::Command(command.clone())),
        None => Ok(AgentServerSource::installed(provision(config, variables))?),
    }
}

fn limits() -> GatewayLimits {
    GatewayLimits {
        max_upload_bytes: Some(MAX_BODY_BYTES),
        ..GatewayLimits::default()
    }
}

/// All settings of the process. Its session key depends on them, so that a running process is restarted after a change.
fn settings_text(process: &ProcessConfig) -> String {
    let settings = process.extra_env.iter();
    let settings = settings.map(|(name, value)| format!("{name}={}\n", value.expose_secret()));
    let settings: String = settings.collect();
    format!("{:?}\n{settings}", process.agent_server)
}

/// Checks that the process reaches this service at the URL: its proxy takes plain requests only.
/// Whether there can be automations.
fn check(config: &Config, internal_url: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.sandbox.shared_host.is_none(),
        "each service with this WORKSPACE_SANDBOX__HOST would keep automations of its own"
    );
    check_url(internal_url)
}

fn check_url(internal_url: &str) -> anyhow::Result<()> {
    let is_supported =
        Url::parse(internal_url).is_ok_and(|url| url.scheme() == "http" && url.path() == "/");
    anyhow::ensure!(
        is_supported,
        "sandboxes call this service at {internal_url}, and automations need an http URL without a path \
         (WORKSPACE_SANDBOX__CALLBACK_URL)"
    );
    Ok(())
}

fn launch(session_key: SecretString, internal_url: &str) -> anyhow::Result<SandboxLaunch> {
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

fn process(
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

/// The settings of openhands-automation 1.25. Its files are in its workspace, which is `/workspace` inside.
fn environment(
    internal_url: &str,
    service_key: &SecretString,
    values_key: &SecretString,
) -> BTreeMap<String, SecretString> {
    let proxy = &*format!("http://{SERVICE_ADDRESS}");
    let all = [
        ("AUTOMATION_OPENHANDS_API_BASE_URL", internal_url),
        ("AUTOMATION_BASE_URL", internal_url),
        ("AUTOMATION_SERVICE_KEY", service_key.expose_secret()),
        // Signs the tokens of runs for `/v1/kv`, and encrypts what they keep there.
        ("AUTOMATION_KV_SECRET", values_key.expose_secret()),
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
        ("HTTP_PROXY", proxy),
        ("http_proxy", proxy),
        ("NO_PROXY", ""),
        ("no_proxy", ""),
    ];
    let all = all.into_iter();
    all.map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_urls_without_a_path_are_supported() {
        for (url, expected) in [
            ("http://127.0.0.2:26229", true),
            ("http://host.docker.internal:3000", true),
            ("https://agents.example", false),
            ("http://agents.example/team", false),
            ("agents.example", false),
        ] {
            assert_eq!(check_url(url).is_ok(), expected, "{url}");
        }
    }
}
