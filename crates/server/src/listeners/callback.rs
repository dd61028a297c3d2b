//! The callback route from sandboxes to this service, and the listener that containers need when the service listens on a
//! loopback address.
//!
//! In a container, a loopback address is the container's own. A container reaches the engine's gateway, an address of this
//! machine that exists while the engine runs. The callback listener waits there and serves sandboxes only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use application::{App, BackgroundTasks};
use domain::sandbox::{BackendReachability, SandboxBackend};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_api::{HttpState, Listener};
use sandbox_provider::{GatewayLookup, SandboxNetworking, is_loopback};
use url::Url;

use crate::config::{Config, HttpSettings, reachable};
use crate::listeners::http_server::{listen, spawn_http_server};

/// Backoff between attempts to listen while the engine answers.
const MIN_RETRY_BACKOFF: Duration = Duration::from_millis(500);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallbackRoute {
    /// The base URL, without the path of the API.
    base: Url,
    /// Whether the route ends at the engine's gateway, which needs a listener of its own.
    pub(crate) needs_listener: bool,
    /// Why sandboxes may not reach the service, for the operator.
    pub(crate) warning: Option<String>,
}

impl CallbackRoute {
    /// The route for a service that listens at `bound`.
    pub(crate) fn new(config: &Config, network: SandboxNetworking, bound: SocketAddr) -> Self {
        let is_local = bound.ip().is_loopback();
        let gateway = network.host();
        let is_elsewhere = matches!(
            network,
            SandboxNetworking::Separate {
                is_remote: true,
                ..
            }
        );
        if let (None, SandboxNetworking::Forwarded { address }) =
            (&config.sandbox.callback_url, network)
        {
            return Self {
                base: reachable(address),
                needs_listener: true,
                warning: None,
            };
        }
        let base = match (&config.sandbox.callback_url, gateway) {
            (Some(url), _) => {
                let warning = (network != SandboxNetworking::Shared && is_loopback(url)).then(|| {
                    format!(
                        "sandbox.callback_url is {url}, but in a sandbox that address is the sandbox itself: \
                             reports of sandboxes will not arrive. Leave it empty, or set it to an address of this \
                             machine that containers reach"
                    )
                });
                return Self {
                    base: url.clone(),
                    needs_listener: false,
                    warning,
                };
            }
            (None, Some(host)) if is_local || bound.ip().is_unspecified() => {
                format!("http://{host}:{}", bound.port())
                    .parse()
                    .expect("a host and a port make a URL")
            }
            (None, _) => reachable(bound),
        };
        let warning = is_elsewhere.then(|| {
            format!(
                "the engine seems to run on another machine, where {base} is not this service: set \
                     WORKSPACE_SANDBOX__CALLBACK_URL to a URL of this service that the other machine reaches"
            )
        });
        Self {
            base,
            needs_listener: gateway.is_some() && is_local && !is_elsewhere,
            warning,
        }
    }

    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub(crate) fn webhooks(&self) -> anyhow::Result<Url> {
        Ok(format!("{}/api/v1/webhooks", self.base()).parse()?)
    }
}

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
    /// Keeps a listener at the engine's gateway while `tasks` run. The engine may be down, and its address may appear later
    /// or change.
    pub(crate) fn start(
        gateway: GatewayLookup,
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
        let work = listener
            .clone()
            .follow_gateway(gateway, backend.watch_reachability());
        listener.tasks.spawn(work);
        listener
    }

    /// Listens for callbacks that the backend forwards, at an address of this machine that no sandbox reaches.
    pub(crate) fn open(
        (http, state): (HttpSettings, HttpState),
        (app, tasks): (App, BackgroundTasks),
    ) -> anyhow::Result<(Self, SocketAddr)> {
        let kind = Listener::Callback;
        let socket = listen(kind, (Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        let parts = (state.clone(), app.clone());
        let handle = spawn_http_server(&http, kind, socket, parts, &tasks)?;
        let listener = Self {
            serving: Arc::new(Mutex::new(Some(handle))),
            port: address.port(),
            http,
            state,
            app,
            tasks,
        };
        Ok((listener, address))
    }

    pub(crate) async fn stop(&self, graceful: bool) {
        if let Some(handle) = self.replace(None) {
            handle.stop(graceful).await;
        }
    }

    fn replace(&self, handle: Option<ServerHandle>) -> Option<ServerHandle> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut serving, handle)
    }

    async fn follow_gateway(
        self,
        gateway: GatewayLookup,
        mut changes: BoxStream<'static, BackendReachability>,
    ) {
        let (mut bound, mut reported) = (None, None);
        let mut reachability = changes.next().await;
        let mut backoff = MIN_RETRY_BACKOFF;
        while let Some(current) = reachability {
            let is_settled = current != BackendReachability::Reachable || {
                let result = self.listen_at(gateway().await, &mut bound).await;
                if let Err(problem) = &result
                    && reported.as_ref() != Some(problem)
                {
                    tracing::warn!("{problem}");
                    reported = Some(problem.clone());
                }
                result.is_ok()
            };
            if is_settled {
                backoff = MIN_RETRY_BACKOFF;
                reachability = changes.next().await;
                continue;
            }
            reachability = tokio::select! {
                next = changes.next() => next,
                // No event reports that an address has appeared or that a port has become free.
                () = tokio::time::sleep(backoff) => Some(BackendReachability::Reachable),
            };
            backoff = (backoff * 2).min(MAX_RETRY_BACKOFF);
        }
    }

    /// Listens at the gateway unless it does already. The error is for the operator.
    async fn listen_at(
        &self,
        gateway: Option<IpAddr>,
        bound: &mut Option<IpAddr>,
    ) -> Result<(), String> {
        let consequence = "Until then sandboxes cannot report, and their events arrive some seconds late. Set \
             WORKSPACE_SANDBOX__CALLBACK_URL to an address of this service that containers reach, or let the service \
             listen on one (WORKSPACE_HTTP__BIND)";
        let gateway = gateway.ok_or_else(|| {
            format!("the engine does not report the address by which containers reach this machine. {consequence}")
        })?;
        if *bound == Some(gateway) {
            return Ok(());
        }
        // The gateway's address has changed.
        self.stop(true).await;
        *bound = None;
        let address = SocketAddr::new(gateway, self.port);
        let unusable = |error: anyhow::Error| {
            format!(
                "cannot listen for sandboxes on {address}, the engine's gateway: {}. {consequence}",
                error.root_cause()
            )
        };
        let socket = listen(Listener::Callback, address).map_err(unusable)?;
        let parts = (self.state.clone(), self.app.clone());
        let kind = Listener::Callback;
        let handle = spawn_http_server(&self.http, kind, socket, parts, &self.tasks);
        self.replace(Some(handle.map_err(unusable)?));
        *bound = Some(gateway);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
