//! Runs the service: start, wait for a signal, orderly shutdown.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use application::audit::AuditService;
use application::{App, BackgroundTasks, KnownHosts, background};
use domain::error::chain;
use domain::id::HostId;
use http_api::{HttpState, Listener};
use rustix::process::{Resource, getrlimit, setrlimit};
use sandbox_provider::{Installation, SandboxNetworking};
use tokio::runtime::Handle;

use crate::compose::{self, Automations, AutomationsPlace, KeyFollower, OpenedBackend, Service};
use crate::config::{AuthModeSetting, Config};
use crate::data_dir::DataDir;
use crate::disk_space::DiskSpace;
use crate::lifecycle::automations::AutomationsRunner;
use crate::lifecycle::banner;
use crate::lifecycle::bootstrap::first_key;
use crate::lifecycle::first_link::first_link;
use crate::lifecycle::reload::ConfigReloader;
use crate::lifecycle::service_manager::ServiceManager;
use crate::lifecycle::shutdown::{RunningListeners, Signals, serve_until_stopped};
use crate::listeners::callback::{CallbackListener, CallbackRoute};
use crate::listeners::http_server::{http_server, listen, spawn_http_server};
use crate::logging::LogLevelHandle;
use settings::EnvVariables;

/// Time for background work to stop after the last request. The next start resumes unfinished work.
const BACKGROUND_GRACE: Duration = Duration::from_secs(5);
const AUDIT_GRACE: Duration = Duration::from_secs(2);
/// How long to wait for the lock of the data directory, which a killed service may hold for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until a signal. Sandboxes keep running; the next start adopts them.
pub(crate) async fn serve(
    config: &Config,
    variables: &EnvVariables,
    level: &LogLevelHandle,
) -> anyhow::Result<()> {
    raise_file_limit();
    let data_dir = DataDir::open(&config.data_dir)?;
    let _lock = lock(&data_dir).await?;
    warn_of_exposure(config, &data_dir)?;
    let (listener, metrics_listener) = open_sockets(config)?;
    // Port 0 takes any free port.
    let bound = listener.local_addr()?;

    // Before the database is opened, which needs some disk space.
    let disk = DiskSpace::new(config);
    let host = host_of(config, &data_dir)?;
    let store = compose::open_store(config).await?;
    let id = format!("{host}/{}", compose::ids().uuid().simple());
    let tasks = BackgroundTasks::new(Handle::current());
    let (vault, keys) =
        KeyFollower::start(config, &data_dir, (&store, compose::clock()), id).await?;
    // Announce the keys early: later steps may take long, and a rotation treats a silent service as gone.
    keys.spawn(&tasks);
    let now = compose::clock().now();
    let first_key = first_key(&config.auth, &data_dir, &store, now).await?;
    let first_link = first_link(&config.auth, &store, now).await?;
    let sandboxes = open_backend(config, variables, &host, &data_dir).await?;
    let route = CallbackRoute::new(config, sandboxes.features.network, bound);
    warn_of_callbacks(config, &route, &sandboxes);
    let parts = (config, variables, &host, &*vault.installation);
    let automations = compose::open_automations(parts, &route).await?;
    let site = automations.as_ref().map(|it| it.site.clone());
    let (parts, spawner) = ((bound, &route, &disk, site), tasks.clone());
    let service = compose::service(config, host, vault, &store, &sandboxes, spawner, parts)?;
    disk.spawn(&store, &tasks);
    compose::spawn_web_app(config, &service.http, &tasks);

    let mut signals = Signals::new()?;
    let (app, http) = (service.app.clone(), service.http.clone());
    let (audit, surface) = (app.audit.clone(), (http.clone(), app.clone()));
    let (server, main) = http_server(&config.http, Listener::Public, listener, surface.clone())?;
    let access = (&first_key, first_link.as_ref());
    banner::announce(config, (bound, &http), &sandboxes, access);
    background::spawn(&app);
    background::prepare(&app);
    let manager = ServiceManager::of(variables);
    manager.ready();
    let mut reloader = ConfigReloader::new((config, variables, level), app.clone(), http.clone());
    let automations = spawn_automations(config, automations, surface.clone(), &tasks)?;
    let metrics = metrics_listener
        .map(|socket| spawn_http_server(&config.http, Listener::Metrics, socket, surface, &tasks));
    let listeners = RunningListeners {
        main,
        metrics: metrics.transpose()?,
        callbacks: open_callbacks(config, &route, &sandboxes, service, &tasks, bound)?,
        app,
        http,
    };
    let context = (&config.http, &manager);
    let stopped = serve_until_stopped(server, &listeners, &mut signals, context, &mut reloader);
    let result = stopped.await;
    stop_background(&audit, &tasks, automations).await;
    keys.withdraw().await;
    tracing::info!("stopped; sandboxes keep running");
    result
}

fn open_sockets(config: &Config) -> anyhow::Result<(TcpListener, Option<TcpListener>)> {
    let public = listen(Listener::Public, config.http.bind)?;
    let metrics = config.metrics.bind;
    let metrics = metrics.map(|bind| listen(Listener::Metrics, bind));
    Ok((public, metrics.transpose()?))
}

async fn stop_background(
    audit: &AuditService,
    tasks: &BackgroundTasks,
    automations: Option<Arc<AutomationsRunner>>,
) {
    if let Some(automations) = automations {
        automations.stop().await;
    }
    if !audit.finish(AUDIT_GRACE).await {
        tracing::warn!(
            "the last entries of the audit log were not written within 2 s and are lost: see earlier errors of the store"
        );
    }
    if !tasks.stop(BACKGROUND_GRACE).await {
        tracing::warn!("some background work did not stop in time; the next start resumes it");
    }
}

fn host_of(config: &Config, data_dir: &DataDir) -> anyhow::Result<HostId> {
    match &config.sandbox.shared_host {
        Some(host) => Ok(host.clone()),
        None => data_dir.host(compose::ids().as_ref()),
    }
}

/// Opens the callback listener, which sandboxes with a network of their own need if they cannot reach the public one.
fn open_callbacks(
    config: &Config,
    route: &CallbackRoute,
    sandboxes: &OpenedBackend,
    service: Service,
    tasks: &BackgroundTasks,
    bound: SocketAddr,
) -> anyhow::Result<Option<CallbackListener>> {
    if let Some(callbacks) = &sandboxes.ports.callbacks {
        let surface = (config.http.clone(), service.http);
        let (listener, address) = CallbackListener::open(surface, (service.app, tasks.clone()))?;
        // This is the only place that sets it.
        let _ = callbacks.set(address);
        return Ok(Some(listener));
    }
    let gateway = sandboxes.ports.gateway.clone();
    let Some(gateway) = gateway.filter(|_| route.needs_listener) else {
        return Ok(None);
    };
    Ok(Some(CallbackListener::start(
        gateway,
        sandboxes.ports.backend.as_ref(),
        bound.port(),
        (config.http.clone(), service.http),
        (service.app, tasks.clone()),
    )))
}

/// Opens the listener for the automations service. Returns what runs that service, if this one does.
fn spawn_automations(
    config: &Config,
    automations: Option<Automations>,
    surface: (HttpState, App),
    tasks: &BackgroundTasks,
) -> anyhow::Result<Option<Arc<AutomationsRunner>>> {
    let hosts = surface.1.hosts.clone();
    let Some(Automations { cleanup, place, .. }) = automations else {
        if !config.automations.is_enabled {
            tasks.spawn(give_up_automations(hosts));
        }
        return Ok(None);
    };
    let kind = Listener::Automations;
    let address = match &place {
        // An address of this machine that the process cannot reach: its backend forwards connections.
        AutomationsPlace::Here { .. } => (Ipv4Addr::LOCALHOST, 0).into(),
        AutomationsPlace::Elsewhere { bind, .. } => *bind,
    };
    let socket = listen(kind, address)?;
    let bound = socket.local_addr()?;
    tasks.spawn(cleanup.run(surface.1.clone()));
    spawn_http_server(&config.http, kind, socket, surface, tasks)?;
    match place {
        AutomationsPlace::Here { runner, listener } => {
            // This is the only place that sets it.
            let _ = listener.set(bound);
            tasks.spawn(Arc::clone(&runner).run(hosts));
            Ok(Some(runner))
        }
        AutomationsPlace::Elsewhere { probe, .. } => {
            tasks.spawn(give_up_automations(hosts));
            tasks.spawn(probe.run());
            Ok(None)
        }
    }
}

/// Lets another host keep the automations, of which none are here.
async fn give_up_automations(hosts: KnownHosts) {
    if let Err(error) = hosts.give_up_automations().await {
        let error = chain(&error);
        tracing::warn!(
            error,
            "cannot leave the automations to another host; the next start tries again"
        );
    }
}

/// Opens the backend, and warns if this installation used another one before.
async fn open_backend(
    config: &Config,
    variables: &EnvVariables,
    host: &HostId,
    data_dir: &DataDir,
) -> anyhow::Result<OpenedBackend> {
    let before = compose::previous_backend(data_dir)?;
    let installation = Installation {
        host,
        data_dir: &config.data_dir,
        variables,
    };
    let sandboxes = compose::open_backend(config, &installation, before.as_deref()).await?;
    let backend = sandboxes.ports.backend.name();
    if let Some(before) = before.filter(|before| before != backend) {
        tracing::warn!(
            "the sandboxes of this installation were created with the backend `{before}`, and this is `{backend}`: \
                 they show as MISSING, keep running unsupervised, and are not lost; set \
                 WORKSPACE_SANDBOX__BACKEND={before} to manage them again"
        );
    }
    data_dir.record_backend(backend)?;
    Ok(sandboxes)
}

/// Connections, sandboxes and the database need more open files than the usual soft limit of 1024.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(error = %chain(&error), "cannot raise the limit of open files");
    }
}

fn warn_of_callbacks(config: &Config, route: &CallbackRoute, sandboxes: &OpenedBackend) {
    if let Some(warning) = &route.warning {
        tracing::warn!("{warning}");
    }
    if config.auth.mode == AuthModeSetting::Open
        && sandboxes.features.network != SandboxNetworking::Shared
        && !route.needs_listener
    {
        tracing::warn!(
            "requests need no key, and sandboxes reach the public listener: every program in a sandbox can do what \
                 its user can; set auth.mode = \"api_key\""
        );
    }
}

/// Locks the data directory. After a crash the lock may still be held for some milliseconds: between `fork` and `exec` a
/// child process shares it.
async fn lock(data_dir: &DataDir) -> anyhow::Result<File> {
    let deadline = tokio::time::Instant::now() + LOCK_TIMEOUT;
    loop {
        match data_dir.lock() {
            Err(_) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

fn warn_of_exposure(config: &Config, data_dir: &DataDir) -> anyhow::Result<()> {
    if let Some(warning) = config.http.warning() {
        tracing::warn!("{warning}");
    }
    if data_dir.is_open_to_others()? {
        tracing::warn!(
            "other users of this machine can read the data directory {0}: run `chmod 700 {0}`",
            data_dir.path().display()
        );
    }
    Ok(())
}
