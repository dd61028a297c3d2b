//! How sandboxes reach this service, and the listener that containers need when it listens on a loopback address.
//!
//! Seen from a container, a loopback address is the container's own. What it can reach is the engine's gateway, an
//! address of this machine that exists while the engine runs. A second listener waits there, for sandboxes only.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use application::{App, BackgroundTasks};
use domain::error::chain;
use domain::sandbox::{BackendReachability, SandboxBackend};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http_api::{Listener, HttpState};
use url::{Host, Url};

use crate::compose::Engine;
use crate::config::{Config, HttpSettings, reachable};
use crate::listeners::http_server::http_server;
use crate::lifecycle::serve::listen;

/// By which name containers reach the machine of their engine.
const HOST_NAME: &str = "host.docker.internal";
/// Between attempts to listen while the engine answers: from the first to the longest pause.
const MIN_RETRY_BACKOFF: Duration = Duration::from_millis(500);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(30);

/// The way from sandboxes to this service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallbackRoute {
    /// Without a path of ours.
    base: Url,
    /// Whether the way ends at the engine's gateway, where we do not listen yet.
    pub(crate) needs_listener: bool,
    /// What is doubtful about it, for the operator.
    pub(crate) doubt: Option<String>,
}

impl CallbackRoute {
    /// For sandboxes that are containers or not, of a service that listens at `bound`.
    pub(crate) fn new(config: &Config, in_containers: bool, bound: SocketAddr) -> Self {
        let configured = config.sandbox.callback_url.clone();
        let is_local = bound.ip().is_loopback();
        let base = match configured {
            Some(url) => {
                let doubt = (in_containers && is_loopback(&url)).then(|| {
                    format!(
                        "sandbox.callback_url is {url}, but in a container that address is the container itself: reports \
                         of sandboxes will not arrive. Leave it empty, or name this machine as containers reach it"
                    )
                });
                return Self {
                    base: url,
                    needs_listener: false,
                    doubt,
                };
            }
            None if in_containers && (is_local || bound.ip().is_unspecified()) => {
                format!("http://{HOST_NAME}:{}", bound.port())
                    .parse()
                    .expect("a host and a port make a URL")
            }
            None => reachable(bound),
        };
        let is_elsewhere = in_containers && is_remote(config.docker.socket.as_deref());
        let doubt = is_elsewhere.then(|| {
            format!(
                "the engine seems to be on another machine, where {base} is not this service: set \
                 WORKSPACE_SANDBOX__CALLBACK_URL to how that machine reaches it"
            )
        });
        Self {
            base,
            needs_listener: in_containers && is_local && !is_elsewhere,
            doubt,
        }
    }

    /// How sandboxes reach us.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Base of the webhooks.
    pub(crate) fn webhooks(&self) -> anyhow::Result<Url> {
        Ok(format!("{}/api/v1/webhooks", self.base()).parse()?)
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Whether this address of an engine is another machine's.
fn is_remote(socket: Option<&str>) -> bool {
    let url = socket.and_then(|socket| Url::parse(&socket.replacen("tcp://", "http://", 1)).ok());
    url.is_some_and(|url| url.scheme() == "http" && !is_loopback(&url))
}

/// Asks for the address of this machine that containers reach.
type GatewayLookup = Arc<dyn Fn() -> BoxFuture<'static, Option<IpAddr>> + Send + Sync>;

/// The listener at the engine's gateway.
#[derive(Clone)]
pub(crate) struct CallbackListener {
    serving: Arc<Mutex<Option<ServerHandle>>>,
    port: u16,
    http: HttpSettings,
    state: HttpState,
    app: App,
    tasks: BackgroundTasks,
}

impl CallbackListener {
    /// Keeps listening at the gateway of this engine for as long as `tasks` run: it may be down now, and its address may
    /// appear with it or change.
    pub(crate) fn start(
        engine: Engine,
        backend: &dyn SandboxBackend,
        port: u16,
        (http, state): (HttpSettings, HttpState),
        (app, tasks): (App, BackgroundTasks),
    ) -> Self {
        let listener = Self {
            serving: Arc::default(),
            port,
            http,
            state,
            app,
            tasks,
        };
        let gateway: GatewayLookup = Arc::new(move || {
            let engine = engine.clone();
            Box::pin(async move { engine.gateway().await })
        });
        let work = listener.clone().keep(gateway, backend.watch_reachability());
        listener.tasks.spawn(work);
        listener
    }

    /// Lets requests under way end, or not.
    pub(crate) async fn stop(&self, graceful: bool) {
        if let Some(handle) = self.replace(None) {
            handle.stop(graceful).await;
        }
    }

    fn replace(&self, handle: Option<ServerHandle>) -> Option<ServerHandle> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut serving, handle)
    }

    async fn keep(self, gateway: GatewayLookup, mut contact: BoxStream<'static, BackendReachability>) {
        let (mut bound, mut told) = (None, None);
        let mut news = contact.next().await;
        let mut pause = MIN_RETRY_BACKOFF;
        while let Some(now) = news {
            let is_settled = now != BackendReachability::Reachable || {
                let done = self.listen_at(gateway().await, &mut bound).await;
                if let Err(why) = &done
                    && told.as_ref() != Some(why)
                {
                    tracing::warn!("{why}");
                    told = Some(why.clone());
                }
                done.is_ok()
            };
            if is_settled {
                pause = MIN_RETRY_BACKOFF;
                news = contact.next().await;
                continue;
            }
            news = tokio::select! {
                changed = contact.next() => changed,
                // No event tells that an address has appeared or a port become free.
                () = tokio::time::sleep(pause) => Some(BackendReachability::Reachable),
            };
            pause = (pause * 2).min(MAX_RETRY_BACKOFF);
        }
    }

    /// Listens there, if not yet. The error is for the operator.
    async fn listen_at(
        &self,
        gateway: Option<IpAddr>,
        bound: &mut Option<IpAddr>,
    ) -> Result<(), String> {
        let what_then = "Until then sandboxes cannot report, and their events come some seconds late. Set \
             WORKSPACE_SANDBOX__CALLBACK_URL to an address of this service that containers reach, or let it listen on one \
             (WORKSPACE_HTTP__BIND)";
        let gateway = gateway.ok_or_else(|| {
            format!("the engine does not say by which address containers reach this machine. {what_then}")
        })?;
        if *bound == Some(gateway) {
            return Ok(());
        }
        // The engine has moved.
        self.stop(true).await;
        *bound = None;
        let address = SocketAddr::new(gateway, self.port);
        let unusable = |error: anyhow::Error| {
            format!(
                "cannot listen for sandboxes on {address}, the engine's gateway: {}. {what_then}",
                error.root_cause()
            )
        };
        let socket = listen(address).map_err(unusable)?;
        let (state, app) = (self.state.clone(), self.app.clone());
        let (server, handle) =
            http_server(&self.http, Listener::Callback, socket, state, app).map_err(unusable)?;
        self.tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(error = %chain(&error), "the listener for sandboxes failed; restart the service to have it again");
            }
        });
        self.replace(Some(handle));
        *bound = Some(gateway);
        tracing::info!(%address, "listening for reports of sandboxes");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
