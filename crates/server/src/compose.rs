//! The composition root: the only file (with those in its folder) that names concrete adapters.

pub(crate) mod adapters;
mod automation_process;
mod automations;
mod backends;
pub(crate) mod egress;
mod git;
mod identity_providers;
mod mail;
mod models;
#[cfg(test)]
mod tests;
pub(crate) mod traces;
mod vault;
mod web_app;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use agent_client::HttpAgentRuntime;
use anyhow::{Context as _, ensure};
use application::{App, AuthMode, BackgroundTasks, EgressControl, Policy, Ports, SecretForm};
use async_trait::async_trait;
use broker::ModelBroker;
use domain::clock::{Clock, SystemClock};
use domain::error::{Classify as _, chain};
use domain::id::{HostId, IdGenerator};
use domain::sandbox::SandboxCaps;
use git_hosting::HttpGitHosting;
use http_api::{
    AddressConfig, AutomationsSite, HttpConfig, HttpPorts, HttpState, Readiness, ReadinessCheck,
};
use keyring::{Argon2Passwords, RandomIds};
use sandbox_docker::DockerProvider;
#[cfg(test)]
use sandbox_example::ExampleProvider;
use sandbox_kubernetes::KubernetesProvider;
use sandbox_process::ProcessProvider;
use sandbox_provider::{BackendFeatures, EgressPolicy, SandboxNetworking, SandboxProvider};
use secrecy::ExposeSecret as _;
use skill_library::DirectoryLibrary;
use store_sql::StoreConfig;
use tokio::runtime::Handle;

use crate::config::{AuthModeSetting, Config, OidcSettings, first_user, without_password};
use crate::disk_space::DiskSpace;
use crate::listeners::callback::CallbackRoute;

pub(crate) use adapters::{SchemaStatus, Store, StoreInspection, probe};
pub(crate) use automations::{
    Automations, AutomationsPlace, describe_automations, open_automations,
};
pub(crate) use backends::{
    OpenedBackend, choose_backend, open_backend, prepare, previous_backend, unnamed_host,
};
pub(crate) use mail::open_mailer;
pub(crate) use traces::open as open_telemetry;
pub(crate) use vault::{
    KeyFollower, Vault, check_legacy, is_sealed, master_keys, open as open_vault, unlock,
};
pub(crate) use web_app::{install_web_app, spawn_web_app};

/// The sandbox backends of this program, in the order in which `auto` tries them.
pub(crate) const BACKENDS: &[&dyn SandboxProvider] = &[
    &DockerProvider,
    &KubernetesProvider,
    &ProcessProvider,
    // Shows that a line is enough: docs/tutorials/sandbox-adapter.md.
    #[cfg(test)]
    &ExampleProvider,
];

/// Acts as a helper program of a backend if the arguments ask for it. Call it before threads exist.
pub(crate) fn run_helper(arguments: impl Iterator<Item = OsString>) -> Option<io::Error> {
    let arguments: Vec<_> = arguments.skip(1).collect();
    BACKENDS
        .iter()
        .find_map(|backend| backend.run_helper(&arguments))
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

pub(crate) fn ids() -> Arc<dyn IdGenerator> {
    Arc::new(RandomIds)
}

/// Opens the store and migrates its schema.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Arc<Store>> {
    Store::open(store_config(config), Handle::current())
        .await
        .with_context(|| {
            format!(
                "cannot open the database of storage.url ({})",
                shown_url(config)
            )
        })
}

pub(crate) async fn inspect_store(config: &Config) -> anyhow::Result<StoreInspection> {
    Store::inspect(store_config(config), Handle::current())
        .await
        .with_context(|| {
            format!(
                "cannot inspect the database of storage.url ({})",
                shown_url(config)
            )
        })
}

fn shown_url(config: &Config) -> String {
    without_password(config.storage.url.expose_secret())
}

fn store_config(config: &Config) -> StoreConfig {
    let mut store = StoreConfig::new(config.storage.url.clone());
    store.connections = config.storage.connections;
    store.slot_timeout = config.storage.wait;
    store
}

pub(crate) struct Service {
    pub(crate) app: App,
    pub(crate) http: HttpState,
}

/// Wires all parts for a service that listens at `bound` and that sandboxes reach by `route`.
pub(crate) fn service(
    config: &Config,
    host: HostId,
    vault: Vault,
    store: &Arc<Store>,
    sandboxes: &OpenedBackend,
    tasks: BackgroundTasks,
    (bound, route, disk, automations): (
        SocketAddr,
        &CallbackRoute,
        &DiskSpace,
        Option<AutomationsSite>,
    ),
) -> anyhow::Result<Service> {
    let is_forwarded = matches!(
        sandboxes.features.network,
        SandboxNetworking::Forwarded { .. }
    );
    ensure!(
        !(config.sandbox.direct_urls && is_forwarded),
        "sandbox.direct_urls is true, but confined sandboxes have no ports on this machine: set WORKSPACE_SANDBOX__DIRECT_URLS=false, \
         so that clients use the gateway"
    );
    let fingerprints = Arc::clone(&vault.installation);
    let models = models::open(config, &sandboxes.features)?;
    let rules = egress::rules(config, sandboxes)?;
    let (hosting, git) = git::open(&config.git)?;
    let ports = ports(config, vault, store, sandboxes, models.clone(), hosting)?;
    let mut policy = policy(config, host, route)?;
    policy.single_sign_on.public_url = Some(config.http.public_url(bound));
    policy.single_user = sandboxes.features.single_user;
    let features = &sandboxes.features;
    policy.warm.target_count = config.kept_warm(features);
    let boots = config.sandbox.parallel_starts;
    policy.max_parallel_boots = boots.unwrap_or(features.parallel_starts);
    if egress::sends_secrets(config, sandboxes) {
        policy.secrets_in_sandboxes = SecretForm::Placeholder;
    }
    if config.egress.policy != EgressPolicy::Open {
        policy.egress = EgressControl::Lists;
    }
    let app = App::new(&ports, policy, tasks);
    let proxy = egress::open(config, sandboxes, rules, &app)?;
    let http_ports = HttpPorts {
        authenticator: Arc::new(app.clone()),
        readiness: Arc::new(ServiceParts {
            app: app.clone(),
            store: Arc::clone(store),
            disk: disk.clone(),
        }),
        clock: clock(),
        ids: ids(),
        fingerprints,
        endpoints: Arc::clone(&sandboxes.ports.endpoints),
    };
    let mut http = http_config(config, bound, &sandboxes.features);
    http.models = models;
    http.git = Some(git);
    http.egress = proxy;
    http.automations = automations;
    let http = HttpState::new(&http, http_ports);
    let pools = Arc::clone(store);
    http.set_pool_stats(Box::new(move || pools.pools()));
    Ok(Service { app, http })
}

fn ports(
    config: &Config,
    vault: Vault,
    store: &Arc<Store>,
    sandboxes: &OpenedBackend,
    models: Option<Arc<ModelBroker>>,
    git: HttpGitHosting,
) -> anyhow::Result<Ports> {
    let agents = Arc::new(HttpAgentRuntime::new(
        agents_config(config),
        clock(),
        Arc::clone(&sandboxes.ports.endpoints),
    ));
    let git = Arc::new(git);
    Ok(Ports {
        conversations: Arc::clone(store) as _,
        conversation_reports: Arc::clone(store) as _,
        conversation_deletions: Arc::clone(store) as _,
        events: Arc::clone(store) as _,
        start_tasks: Arc::clone(store) as _,
        start_queue: Arc::clone(store) as _,
        sandboxes: Arc::clone(store) as _,
        sandbox_keys: Arc::clone(store) as _,
        host_sandboxes: Arc::clone(store) as _,
        warm: Arc::clone(store) as _,
        backend: Arc::clone(&sandboxes.ports.backend),
        sandbox_lifecycle: Arc::clone(&sandboxes.ports.lifecycle),
        sandbox_reader: Arc::clone(&sandboxes.ports.reader),
        specs: Arc::new(sandboxes.ports.specs.clone()),
        agents: Arc::clone(&agents) as _,
        agent_lifecycle: Arc::clone(&agents) as _,
        agent_reader: Arc::clone(&agents) as _,
        settings: Arc::clone(store) as _,
        secrets: Arc::clone(store) as _,
        workspace: agents,
        pending: Arc::clone(store) as _,
        skills: Arc::new(skills(config)),
        git: Arc::clone(&git) as _,
        clone_sources: git,
        api_keys: Arc::clone(store) as _,
        users: Arc::clone(store) as _,
        sessions: Arc::clone(store) as _,
        passwords: Arc::clone(store) as _,
        organizations: Arc::clone(store) as _,
        organization_deletions: Arc::clone(store) as _,
        device_logins: Arc::clone(store) as _,
        egress_requests: Arc::clone(store) as _,
        identities: Arc::clone(store) as _,
        identity_providers: Arc::new(identity_providers::open(&config.auth.oidc)?),
        password_hasher: Arc::new(Argon2Passwords::new()),
        mailer: mail::mailer(config.mail.as_ref())?,
        administration: Arc::clone(store) as _,
        audit: Arc::clone(store) as _,
        idempotent_responses: Arc::clone(store) as _,
        usage: Arc::clone(store) as _,
        spending: Arc::clone(store) as _,
        hosts: Arc::clone(store) as _,
        leases: Arc::clone(store) as _,
        changes: Arc::clone(store) as _,
        vault: Arc::clone(store) as _,
        cipher: vault.keyring,
        fingerprints: vault.installation,
        models: models.map(|models| models as _),
        clock: clock(),
        ids: ids(),
    })
}

pub(crate) fn caps(config: &Config) -> SandboxCaps {
    SandboxCaps {
        per_user: config.sandbox.max_running_per_user,
        overall: config.sandbox.max_running,
    }
}

fn skills(config: &Config) -> DirectoryLibrary {
    let authorities = config.git.authorities.as_ref();
    DirectoryLibrary::new(skill_library::Config {
        global: config.skill_directories.clone(),
        user: config.data_dir.join("skills"),
        scratch: config.data_dir.join("marketplaces"),
        ca_file: authorities.map(|(path, _)| path.clone()),
    })
}

fn agents_config(config: &Config) -> agent_client::Config {
    agent_client::Config {
        trace: traces::propagation(config).map(|traces| traces.current),
        ..agent_client::Config::default()
    }
}

fn policy(config: &Config, host: HostId, route: &CallbackRoute) -> anyhow::Result<Policy> {
    let auth = match config.auth.mode {
        AuthModeSetting::ApiKey => AuthMode::ApiKey,
        AuthModeSetting::Accounts => AuthMode::Accounts,
        AuthModeSetting::Open => AuthMode::Open(first_user()),
    };
    let webhooks = route.webhooks();
    let webhooks = webhooks.context("cannot append a path to sandbox.callback_url")?;
    let mut policy = Policy::new(host, webhooks, auth);
    policy.sessions = config.auth.sessions;
    policy.single_sign_on.rules = OidcSettings::rules(&config.auth.oidc);
    policy.cors_origins.clone_from(&config.http.cors_origins);
    policy.caps.set(caps(config));
    policy.sandbox_start_timeout = config.start.sandbox_deadline;
    policy.prepare_timeout = config.start.prepare_deadline;
    policy.clone_timeout = config.start.clone_deadline;
    policy.setup_timeout = config.start.setup_deadline;
    policy.max_parallel_starts = config.start.parallel;
    policy.warm.max_age = config.sandbox.warm_max_age;
    policy.retention.set(config.retention);
    policy.quota.set(config.quota);
    policy.month_budget = config.broker.month_budget;
    policy.git = config.broker.git.clone();
    policy.git_caller = config.broker.git_caller;
    policy.secret_exposure = config.broker.exposure;
    policy.verify_git_tokens = config.git.verify_tokens;
    policy.mcp_in_conversations = config.mcp_in_conversations;
    policy.traces = traces::propagation(config);
    if config.sandbox.shared_host.is_some() {
        policy.share_host();
    }
    Ok(policy)
}

fn http_config(config: &Config, bound: SocketAddr, sandboxes: &BackendFeatures) -> HttpConfig {
    let network = sandboxes.network;
    let public_url = config.http.public_url(bound);
    HttpConfig {
        web_app: web_app::site(config, &public_url),
        sandbox_isolation: isolation(sandboxes),
        limits: config.http.limits,
        cors_origins: config.http.cors_origins.clone(),
        open: config.auth.mode == AuthModeSetting::Open,
        accounts: config.auth.mode == AuthModeSetting::Accounts,
        addresses: AddressConfig {
            public_url: Some(public_url),
            sandbox_url: config.http.sandbox_url.clone(),
            direct: config.sandbox.direct_urls,
            callback_host: network.host().map(str::to_owned),
        },
        trusted_proxies: config.http.trusted_proxies.clone(),
        gateway: config.http.gateway.clone(),
        metrics_key: config.metrics.key.clone(),
        has_metrics_listener: config.metrics.bind.is_some(),
        web_client: config.web_client.clone(),
        traces: traces::propagation(config),
        models: None,
        git: None,
        egress_policy: egress::describe(&config.egress),
        egress: None,
        automations: None,
    }
}

/// What `/server_info` says about the isolation of sandboxes.
pub(crate) fn isolation(sandboxes: &BackendFeatures) -> &'static str {
    match (sandboxes.is_isolated, sandboxes.network) {
        (false, _) => "none",
        (true, SandboxNetworking::Forwarded { .. }) => "confined",
        (true, _) => "container",
    }
}

struct ServiceParts {
    app: App,
    store: Arc<Store>,
    disk: DiskSpace,
}

#[async_trait]
impl Readiness for ServiceParts {
    async fn checks(&self) -> Vec<ReadinessCheck> {
        let (store, missing, sandboxes, disk) = tokio::join!(
            self.store.ping(),
            self.store.missing_migrations(),
            self.app.check_backend(),
            self.disk.problem()
        );
        let store = store
            .inspect_err(|error| tracing::warn!(error = %chain(&error), "the store is not ready"));
        let sandboxes = sandboxes.inspect_err(
            |error| tracing::warn!(error = %chain(&error), "the sandbox backend is not ready"),
        );
        // If the migrations cannot be read, the store check fails as well.
        let missing = missing.ok().filter(|count| *count > 0);
        let missing = missing.map(|count| {
            format!(
                "the database lacks {count} migrations of this version; restart the service, which applies them"
            )
        });
        vec![
            ReadinessCheck {
                name: "store",
                failure: store.err().map(|error| error.public().into_owned()),
            },
            ReadinessCheck {
                name: "migrations",
                failure: missing,
            },
            ReadinessCheck {
                name: "sandboxes",
                failure: sandboxes.err().map(|error| error.public().into_owned()),
            },
            ReadinessCheck {
                name: "disk",
                failure: disk,
            },
        ]
    }

    fn refuses_writes(&self) -> Option<String> {
        self.disk.refusal()
    }
}
