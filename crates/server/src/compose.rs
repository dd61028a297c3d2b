//! The composition root: the only file that names concrete adapters.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use agent_client::HttpAgentRuntime;
use anyhow::Context as _;
use application::{App, AuthMode, Policy, Ports, Tasks};
use async_trait::async_trait;
use domain::cipher::{CipherError, Sealed};
use domain::clock::{Clock, SystemClock};
use domain::error::Classify as _;
use domain::id::{HostId, IdGenerator};
use domain::identity::ApiKeyRepository;
use domain::sandbox::{Caps, SandboxBackend, SandboxSpecCatalog};
use http_api::{Check, HttpConfig, HttpPorts, HttpState, Limits, Readiness};
use keyring::{Keyring, MasterKey, RandomIds, private_file};
use sandbox_process::launcher::{self, Launcher};
use sandbox_process::provision::{self, Environment, Provisioner};
use sandbox_process::{AgentServerSource, ProcessConfig, ProcessSandboxes, ProcessSpecs};
use secrecy::ExposeSecret as _;
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::bootstrap::first_user;
use crate::config::{Backend, Config, Mode, reachable};
use crate::data_dir::DataDir;

/// Variables of the process.
pub(crate) type Variables = [(OsString, OsString)];

/// Becomes the program of a sandbox if that is what this process was started for. Before threads and everything else.
pub(crate) fn launch(mut arguments: impl Iterator<Item = OsString>) -> Option<io::Error> {
    (arguments.nth(1)? == launcher::SUBCOMMAND).then(|| launcher::main(arguments))
}

/// Where time comes from.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Where ids come from.
pub(crate) fn ids() -> Arc<dyn IdGenerator> {
    Arc::new(RandomIds)
}

/// Opens the store, which brings its schema up to date.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Arc<SqlStore>> {
    let mut store = StoreConfig::new(config.storage.url.clone());
    store.connections = config.storage.connections;
    store.wait = config.storage.wait;
    SqlStore::open(store, Handle::current())
        .await
        .context("cannot open the store")
}

/// Opens the store for the sake of API keys alone.
pub(crate) async fn open_keys(config: &Config) -> anyhow::Result<Arc<dyn ApiKeyRepository>> {
    Ok(open_store(config).await?)
}

/// The master key, checked against the data directory's canary: with another key no secret would open.
pub(crate) fn open_keyring(config: &Config, data_dir: &DataDir) -> anyhow::Result<Keyring> {
    let generated = if config.secrets.master_key.is_none() {
        Some(MasterKey::from_file_or_generate(&data_dir.master_key())?.0)
    } else {
        None
    };
    let master_key = config.secrets.master_key.as_ref().or(generated.as_ref());
    let master_key = master_key.context("there is no master key")?;
    let keyring = Keyring::new(master_key, &config.secrets.previous);
    let path = data_dir.canary();
    let fresh = keyring.canary().context("cannot seal")?;
    let (canary, _) = private_file::read_or_create(&path, || fresh.as_text().into())
        .with_context(|| format!("cannot use {}", path.display()))?;
    match keyring.check_canary(&Sealed::from_text(canary.expose_secret())) {
        Ok(()) => Ok(keyring),
        Err(CipherError::UnknownKey { key_id }) => anyhow::bail!(
            "this is not the master key of this installation: its secrets were sealed with the key {key_id}, and this \
             key is {}. Restore the key (WORKSPACE_SECRETS__MASTER_KEY or {}), or name the former one in \
             WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS",
            keyring.key_id(),
            data_dir.master_key().display()
        ),
        Err(error) => Err(error).with_context(|| format!("{} is damaged", path.display())),
    }
}

/// What runs sandboxes, and why it was chosen.
pub(crate) struct Sandboxes {
    pub(crate) backend: Arc<dyn SandboxBackend>,
    pub(crate) specs: Arc<dyn SandboxSpecCatalog>,
    pub(crate) why: &'static str,
}

/// Makes the backend that was asked for.
pub(crate) async fn open_sandboxes(
    config: &Config,
    variables: &Variables,
    host: &HostId,
) -> anyhow::Result<Sandboxes> {
    let why = match config.sandbox.backend {
        Backend::Process => "configured",
        Backend::Auto => {
            "auto: this build has no Docker backend yet; processes are not isolated from this machine"
        }
    };
    let mut process = ProcessConfig::new(
        &config.data_dir,
        host.clone(),
        agent_server(config, variables)?,
    );
    process.launcher = Launcher::ThisBinary;
    process.grace = config.sandbox.stop_grace;
    process.boot_limit = config.start.sandbox_deadline;
    process.parallel_starts = config.sandbox.parallel_starts;
    if let Some(path) = &config.sandbox.path {
        process.path.clone_from(path);
    } else if let Some(path) = own_path(variables) {
        process.path = path;
    }
    let specs = ProcessSpecs::new(&process, SystemClock.now());
    let backend = ProcessSandboxes::new(process)
        .await
        .context("cannot use process sandboxes")?;
    Ok(Sandboxes {
        backend: Arc::new(backend),
        specs: Arc::new(specs),
        why,
    })
}

fn own_path(variables: &Variables) -> Option<String> {
    let (_, path) = variables.iter().find(|(name, _)| name == "PATH")?;
    path.to_str()
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
}

fn agent_server(config: &Config, variables: &Variables) -> anyhow::Result<AgentServerSource> {
    Ok(match &config.sandbox.agent_server_command {
        Some(words) => AgentServerSource::Command(words.iter().map(OsString::from).collect()),
        None => AgentServerSource::Provision(provisioner(config, variables)?),
    })
}

fn provisioner(config: &Config, variables: &Variables) -> anyhow::Result<Provisioner> {
    let environment = Environment::pick(variables.iter().cloned());
    let mut settings = provision::Config::new(&config.data_dir, environment);
    if let Some(version) = &config.sandbox.agent_server_version {
        settings.version.clone_from(version);
    }
    settings.python.clone_from(&config.sandbox.python);
    settings.index_url.clone_from(&config.sandbox.index_url);
    settings.proxy.clone_from(&config.sandbox.proxy);
    settings.wheels.clone_from(&config.sandbox.wheel_dir);
    Provisioner::new(settings).context("cannot provision the agent server")
}

/// Installs the agent server, if that is for us to do, and says how it is started.
pub(crate) async fn prepare(
    config: &Config,
    variables: &Variables,
) -> anyhow::Result<Vec<OsString>> {
    match agent_server(config, variables)? {
        AgentServerSource::Command(words) => Ok(words),
        AgentServerSource::Provision(provisioner) => Ok(provisioner.ensure().await?.command()),
    }
}

/// Where the agent server comes from, or why it cannot come from anywhere.
pub(crate) async fn agent_server_outlook(
    config: &Config,
    variables: &Variables,
) -> anyhow::Result<String> {
    let AgentServerSource::Provision(provisioner) = agent_server(config, variables)? else {
        return Ok("configured command".to_owned());
    };
    let version = provisioner.version().to_owned();
    if let Some(server) = provisioner.find().await {
        return Ok(format!(
            "{version} is installed in {}",
            server.root.display()
        ));
    }
    let with = provisioner.outlook().await?;
    Ok(format!(
        "{version} is not installed yet; the first start will, with {with}"
    ))
}

/// The application and its HTTP surface.
pub(crate) struct Service {
    pub(crate) app: App,
    pub(crate) http: HttpState,
}

/// Wires everything. `bound` is where we listen.
pub(crate) fn service(
    config: &Config,
    host: HostId,
    keyring: Keyring,
    store: &Arc<SqlStore>,
    sandboxes: &Sandboxes,
    tasks: Tasks,
    bound: SocketAddr,
) -> anyhow::Result<Service> {
    let agents = HttpAgentRuntime::new(agent_client::Config::default(), clock())
        .context("cannot make an HTTP client")?;
    let ports = Ports {
        conversations: Arc::clone(store) as _,
        events: Arc::clone(store) as _,
        start_tasks: Arc::clone(store) as _,
        sandboxes: Arc::clone(store) as _,
        backend: Arc::clone(&sandboxes.backend),
        specs: Arc::clone(&sandboxes.specs),
        agents: Arc::new(agents),
        settings: Arc::clone(store) as _,
        api_keys: Arc::clone(store) as _,
        cipher: Arc::new(keyring),
        clock: clock(),
        ids: ids(),
    };
    let app = App::new(ports, policy(config, host, bound)?, tasks);
    let http_ports = HttpPorts {
        authenticator: Arc::new(app.clone()),
        readiness: Arc::new(Parts {
            app: app.clone(),
            store: Arc::clone(store),
        }),
        clock: clock(),
        ids: ids(),
    };
    let http = HttpState::new(&http_config(config, bound), http_ports);
    Ok(Service { app, http })
}

fn policy(config: &Config, host: HostId, bound: SocketAddr) -> anyhow::Result<Policy> {
    let auth = match config.auth.mode {
        Mode::ApiKey => AuthMode::ApiKey,
        Mode::Open => AuthMode::Open(first_user()),
    };
    let base = config
        .sandbox
        .callback_url
        .clone()
        .unwrap_or_else(|| reachable(bound));
    let webhooks = format!("{}/api/v1/webhooks", base.as_str().trim_end_matches('/'));
    let webhooks = webhooks
        .parse()
        .context("sandbox.callback_url does not fit a path")?;
    let mut policy = Policy::new(host, webhooks, auth);
    policy.cors_origins.clone_from(&config.http.cors_origins);
    policy.caps = Caps {
        per_user: config.sandbox.max_running_per_user,
        overall: config.sandbox.max_running,
    };
    policy.sandbox_start_deadline = config.start.sandbox_deadline;
    policy.prepare_deadline = config.start.prepare_deadline;
    policy.max_parallel_starts = config.start.parallel;
    Ok(policy)
}

fn http_config(config: &Config, bound: SocketAddr) -> HttpConfig {
    HttpConfig {
        limits: Limits {
            body: config.http.max_body,
            webhook_body: config.http.max_webhook_body,
            ..Limits::default()
        },
        cors_origins: config.http.cors_origins.clone(),
        open: config.auth.mode == Mode::Open,
        public_url: Some(config.http.public_url(bound)),
    }
}

/// What must work before requests are worth sending.
struct Parts {
    app: App,
    store: Arc<SqlStore>,
}

#[async_trait]
impl Readiness for Parts {
    async fn checks(&self) -> Vec<Check> {
        let (store, sandboxes) = tokio::join!(self.store.ping(), self.app.check_backend());
        let store = store.inspect_err(|error| tracing::warn!(%error, "the store is not ready"));
        let sandboxes = sandboxes
            .inspect_err(|error| tracing::warn!(%error, "the sandbox backend is not ready"));
        vec![
            Check {
                name: "store",
                failure: store.err().map(|error| error.public().into_owned()),
            },
            Check {
                name: "sandboxes",
                failure: sandboxes.err().map(|error| error.public().into_owned()),
            },
        ]
    }
}
