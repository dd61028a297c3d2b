//! Running the service: start, wait for a signal, stop in order.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;
use application::audit::Audit;
use application::{App, BackgroundTasks, background};
use domain::error::chain;
use domain::id::HostId;
use http_api::Listener;
use rustix::process::{Resource, getrlimit, setrlimit};
use secrecy::ExposeSecret as _;
use tokio::net::TcpSocket;
use tokio::runtime::Handle;

use crate::lifecycle::banner::StartupBanner;
use crate::lifecycle::bootstrap::{FirstKey, first_key};
use crate::listeners::callback::{CallbackListener, CallbackRoute};
use crate::compose::{self, KeyFollower, OpenedBackend, Service, Variables};
use crate::config::{Config, AuthModeSetting, without_password};
use crate::data_dir::{DataDir, Lock};
use crate::disk_space::DiskSpace;
use crate::listeners::http_server::http_server;
use crate::logging::LogLevelHandle;
use crate::lifecycle::service_manager::ServiceManager;
use crate::listeners::metrics as metrics_listener;
use crate::lifecycle::reload::ConfigReloader;
use crate::lifecycle::shutdown::{RunningListeners, Signals, serve_until_stopped};

/// How long background work may take to stop once requests are done. Whatever it does is resumed on the next start.
const BACKGROUND_GRACE: Duration = Duration::from_secs(5);
/// How long the last lines of the audit log may take.
const AUDIT_GRACE: Duration = Duration::from_secs(2);
/// What follows once requests are done: these, and what cannot be cut off.
pub(crate) const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a data directory may seem taken by a service that has just been killed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const LISTEN_BACKLOG: u32 = 4096;

/// Runs until a signal to stop. Sandboxes go on without us and are adopted by the next start.
pub(crate) async fn serve(
    config: &Config,
    variables: &Variables,
    level: &LogLevelHandle,
) -> anyhow::Result<()> {
    raise_file_limit();
    let data_dir = DataDir::open(&config.data_dir)?;
    let _lock = take(&data_dir).await?;
    warn(config, &data_dir)?;
    let listener = listen(config.http.bind)?;
    let bound = listener.local_addr()?;
    let for_operators = metrics_listener::listen(config)?;

    // Before the database is opened, which needs some room.
    let disk = DiskSpace::new(config);
    let host = host_of(config, &data_dir)?;
    let store = compose::open_store(config).await?;
    let id = format!("{host}/{}", compose::ids().uuid().simple());
    let tasks = BackgroundTasks::new(Handle::current());
    let (vault, keys) = KeyFollower::start(config, &data_dir, (&store, compose::clock()), id).await?;
    // At once: what follows may take long, and a rotation takes a service that says nothing for gone.
    keys.spawn(&tasks);
    let now = compose::clock().now();
    let first_key = first_key(&config.auth, &data_dir, &store, now).await?;
    let sandboxes = open_sandboxes(config, variables, &host, &data_dir).await?;
    let route = CallbackRoute::new(config, sandboxes.engine.is_some(), bound);
    warn_of_callbacks(config, &route, &sandboxes);
    let service = compose::service(
        config,
        host,
        vault,
        &store,
        &sandboxes,
        tasks.clone(),
        (bound, &route, &disk),
    )?;
    disk.spawn(&store, &tasks);

    let mut signals = Signals::new()?;
    let (server, main) = http_server(
        &config.http,
        Listener::Public,
        listener,
        service.http.clone(),
        service.app.clone(),
    )?;
    announce(config, bound, &sandboxes, &first_key);
    start_background(&service.app);
    let manager = ServiceManager::of(variables);
    manager.ready();
    let (app, http) = (service.app.clone(), service.http.clone());
    let mut reloader = ConfigReloader::new((config, variables, level), app.clone(), http.clone());
    let audit = service.app.audit.clone();
    let listeners = RunningListeners {
        main,
        metrics: metrics_listener::start(for_operators, config, &service, &tasks)?,
        callbacks: open_callbacks(config, &route, &sandboxes, service, &tasks, bound),
        app,
        http,
    };
    let told = (&config.http, &manager);
    let result = serve_until_stopped(server, &listeners, &mut signals, told, &mut reloader).await;
    stop_background(&audit, &tasks).await;
    keys.withdraw().await;
    tracing::info!("stopped; sandboxes go on running");
    result
}

fn announce(config: &Config, bound: SocketAddr, sandboxes: &OpenedBackend, first_key: &FirstKey) {
    let started = StartupBanner {
        config,
        bound,
        public_url: &config.http.public_url(bound),
        store: &without_password(config.storage.url.expose_secret()),
        backend: sandboxes.backend.name(),
        why: &sandboxes.why,
        first_key,
    };
    started.announce();
}

/// Once requests are done.
async fn stop_background(audit: &Audit, tasks: &BackgroundTasks) {
    if !audit.finish(AUDIT_GRACE).await {
        tracing::warn!("the last lines of the audit log could not be written");
    }
    if !tasks.stop(BACKGROUND_GRACE).await {
        tracing::warn!("some background work did not stop in time; the next start resumes it");
    }
}

/// Whose sandboxes this service looks after.
fn host_of(config: &Config, data_dir: &DataDir) -> anyhow::Result<HostId> {
    match &config.sandbox.shared_host {
        Some(host) => Ok(host.clone()),
        None => data_dir.host(compose::ids().as_ref()),
    }
}

/// The listener that containers need where they cannot reach the one for everybody.
fn open_callbacks(
    config: &Config,
    route: &CallbackRoute,
    sandboxes: &OpenedBackend,
    service: Service,
    tasks: &BackgroundTasks,
    bound: SocketAddr,
) -> Option<CallbackListener> {
    let engine = sandboxes.engine.clone().filter(|_| route.needs_listener)?;
    Some(CallbackListener::start(
        engine,
        sandboxes.backend.as_ref(),
        bound.port(),
        (config.http.clone(), service.http),
        (service.app, tasks.clone()),
    ))
}

/// Opens the backend, and says when this installation had another one.
async fn open_sandboxes(
    config: &Config,
    variables: &Variables,
    host: &HostId,
    data_dir: &DataDir,
) -> anyhow::Result<OpenedBackend> {
    let before = data_dir.backend()?;
    let sandboxes = compose::open_sandboxes(config, variables, host, before.as_deref()).await?;
    let backend = sandboxes.backend.name();
    if let Some(before) = before.filter(|before| before != backend) {
        tracing::warn!(
            "sandboxes of this installation were made with the backend `{before}`, and this is `{backend}`: they show as \
             MISSING, what runs of them goes on unwatched, and none is lost; set WORKSPACE_SANDBOX__BACKEND={before} to have \
             them back"
        );
    }
    data_dir.remember_backend(backend)?;
    Ok(sandboxes)
}

/// Connections, sandboxes and the database need more open files than the usual soft limit of 1024.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(error = %chain(&error), "the limit of open files stays");
    }
}

/// What is doubtful about the way from sandboxes to this service.
fn warn_of_callbacks(config: &Config, route: &CallbackRoute, sandboxes: &OpenedBackend) {
    if let Some(doubt) = &route.doubt {
        tracing::warn!("{doubt}");
    }
    if config.auth.mode == AuthModeSetting::Open && sandboxes.engine.is_some() && !route.needs_listener {
        tracing::warn!(
            "no key is needed, and sandboxes reach this service by the address that users do: whatever runs in one can do \
             what its user can"
        );
    }
}

/// Takes the data directory. A service that was killed while it started a sandbox may still seem to hold it: between
/// `fork` and `exec` the child shares the lock, for some milliseconds.
async fn take(data_dir: &DataDir) -> anyhow::Result<Lock> {
    let give_up = tokio::time::Instant::now() + LOCK_TIMEOUT;
    loop {
        match data_dir.lock() {
            Err(_) if tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            done => return done,
        }
    }
}

fn start_background(app: &App) {
    background::spawn(app);
    background::prepare(app);
}

fn warn(config: &Config, data_dir: &DataDir) -> anyhow::Result<()> {
    if let Some(doubt) = config.http.doubt() {
        tracing::warn!("{doubt}");
    }
    if data_dir.is_open_to_others()? {
        tracing::warn!(
            "other users of this machine may look into the data directory {0}: `chmod 700 {0}`",
            data_dir.path().display()
        );
    }
    Ok(())
}

pub(crate) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    open(address).with_context(|| {
        format!("cannot listen on {address}; set WORKSPACE_HTTP__BIND to another address or port")
    })
}

/// A socket that listens there.
pub(crate) fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // So that a restart does not wait for connections of the last life.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)?.into_std()
}
