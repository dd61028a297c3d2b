//! The state that all request handlers share: the seam between this crate and the rest.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::{HttpRequest, web};
use application::settings::ViewCache;
use application::trace::TracePropagation;
use domain::clock::Clock;
use domain::encryption::vault::Fingerprints;
use domain::id::IdGenerator;
use domain::network::Network;
use endpoint_guard::EndpointGuard;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use url::Url;

use crate::addresses::{AddressConfig, Addresses};
use crate::automations::AutomationsSite;
use crate::browser_session::cookies::BrowserSessions;
use crate::dto::configuration::web_client::{LegacyWebClientDto, WebClient, WebClientDto};
use crate::dto::timestamped::TimestampedJson;
use crate::extract::authenticator::Authenticator;
use crate::extract::parse_budget::ParseBudget;
use crate::extract::report_intake::ReportIntake;
use crate::metrics::{HttpMetrics, PoolStatsSource};
use crate::middleware::cors::Cors;
use crate::middleware::open_mode::RefusalLog;
use crate::openapi::RouteSurface;
use crate::problem::Problem;
use crate::process_stats::ProcessStats;
use crate::rate_limit::RateLimiter;
use crate::readiness::{Readiness, ReadinessCache, ReadinessCheck};
use crate::specs_cache::SpecsCache;
use crate::unsent_bytes::{UnsentBytes, UnsentLimits};

/// The application, as handlers take it: `app: Application`.
pub type Application = web::Data<application::App>;

/// The state of this crate: `state: State`. Few handlers need it.
pub type State = web::Data<HttpState>;

pub(crate) fn state_of(req: &HttpRequest) -> Result<&HttpState, Problem> {
    req.app_data::<State>()
        .map(web::Data::get_ref)
        .ok_or_else(|| Problem::internal("HttpState is not registered with the application"))
}

/// Bounds on the cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Largest body of a user's request, in bytes.
    pub body: usize,
    /// Largest body of a webhook, in bytes. Events carry the output of tools.
    pub webhook_body: usize,
    /// The rate limit: requests per second that one key may send; 0 means no limit.
    pub requests_per_second: u32,
    /// Wrong keys per second that one address may try; 0 means no limit.
    pub wrong_keys_per_second: u32,
    /// Longest wait for the whole body of a request.
    pub body_deadline: Duration,
    /// Longest duration of the checks behind `/ready`.
    pub ready_deadline: Duration,
    /// Longest wait for a client that reads nothing of a download.
    pub stalled_deadline: Duration,
    /// Time between two access rechecks of a long response (stream, log, download, socket). A key is cached for a second, so
    /// what it opened ends at most this time plus one second after the key was revoked.
    pub access_recheck_interval: Duration,
    /// Bounds on the bytes of responses that clients have not read yet.
    pub unsent: UnsentLimits,
}

/// Pages of downloads that are read and packed at the same time. Each keeps one core busy and its events in memory.
const MAX_CONCURRENT_ARCHIVES: usize = 2;

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body: 2 * 1024 * 1024,
            webhook_body: 32 * 1024 * 1024,
            requests_per_second: 1_000,
            wrong_keys_per_second: 100,
            body_deadline: Duration::from_secs(30),
            ready_deadline: Duration::from_secs(2),
            stalled_deadline: Duration::from_secs(60),
            access_recheck_interval: Duration::from_secs(3),
            unsent: UnsentLimits::default(),
        }
    }
}

/// The configuration of the HTTP surface.
#[derive(Debug, Clone, Default)]
pub struct HttpConfig {
    /// Bounds on requests.
    pub limits: RequestLimits,
    /// Origins whose pages may call from a browser: exact, or with `*` as the port (`http://localhost:*`).
    pub cors_origins: Vec<String>,
    /// Whether requests without a key act as the local user. Pages of other origins are then refused outright, because a
    /// browser would send their requests with that user's rights.
    pub open: bool,
    /// Whether users sign in, and their browsers have sessions.
    pub accounts: bool,
    /// The addresses that clients use. An open service refuses other host names (see `middleware::open_mode`).
    pub addresses: AddressConfig,
    /// Machines whose forwarding headers are trusted; see [`ClientAddress`](crate::extract::ClientAddress).
    pub trusted_proxies: Vec<Network>,
    /// Bounds on requests that the gateway forwards to sandboxes.
    pub gateway: gateway::GatewayLimits,
    /// The key that `/metrics` requires on the public listener; without one, anyone may read it.
    pub metrics_key: Option<SecretString>,
    /// Whether a [`Listener::Metrics`] exists. The public listener then serves `/metrics` only with the key.
    pub has_metrics_listener: bool,
    /// How sandboxes are isolated from this machine, as `/server_info` says: `container`, `confined` or `none`.
    pub sandbox_isolation: &'static str,
    /// What sandboxes reach: `open`, `allow_list` or `none`.
    pub egress_policy: &'static str,
    /// The configuration that web front ends load.
    pub web_client: WebClient,
    /// How trace contexts are adopted and propagated; `None` where traces are not exported.
    pub traces: Option<TracePropagation>,
    /// The web application at `/`; `None` where there is none.
    pub web_app: Option<WebAppSite>,
    /// Calls models for sandboxes; `None` if they call models themselves.
    pub models: Option<Arc<broker::ModelBroker>>,
    /// Calls git hosts for sandboxes; `None` in parts of tests.
    pub git: Option<broker::GitBroker>,
    /// The forward proxy of sandboxes, if they have one.
    pub egress: Option<Arc<broker::EgressProxy>>,
    /// The automations service; `None` where there is none.
    pub automations: Option<AutomationsSite>,
}

/// The web application, and where browsers reach it.
#[derive(Debug, Clone)]
pub struct WebAppSite {
    /// The build, once it is installed.
    pub slot: web_app::WebAppSlot,
    /// The public URL, without a path.
    pub public_url: Url,
    /// Whether the operator chose that URL. Otherwise it is derived from the address, and clients may use other names.
    pub is_url_configured: bool,
    /// The URL of other pages of sandboxes, if they have their own.
    pub sandbox_url: Option<Url>,
}

/// The ports that the surface uses.
#[derive(Clone)]
pub struct HttpPorts {
    /// Identifies callers by their keys.
    pub authenticator: Arc<dyn Authenticator>,
    /// Answers `/ready`.
    pub readiness: Arc<dyn Readiness>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Request ids.
    pub ids: Arc<dyn IdGenerator>,
    /// Signs addresses.
    pub fingerprints: Arc<dyn Fingerprints>,
    /// Proves that the sandbox, and no other process, accepted a connection to its agent server.
    pub endpoints: Arc<dyn EndpointGuard>,
}

/// The state of one listener; cheap to clone, shared by all workers.
#[derive(Clone)]
pub struct HttpState {
    shared: Arc<SharedState>,
    /// One per listener, because each serves other routes.
    surfaces: [Arc<OnceLock<RouteSurface>>; 4],
    pub(crate) listener: Listener,
    pub(crate) addresses: Arc<Addresses>,
}

/// The audience of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Users and the internet: every route.
    Public,
    /// Sandboxes, on an address that only they should use: the routes that take a sandbox's key, and no others.
    Callback,
    /// Monitoring, inside the operator's network: `/metrics` without a key, and `/alive`.
    Metrics,
    /// The automations service: what it needs to start its runs, with its own keys.
    Automations,
}

/// The cached settings responses of both APIs.
#[derive(Default)]
pub(crate) struct SettingsCache {
    pub(crate) v1: ViewCache<TimestampedJson>,
    /// As web front ends get them.
    pub(crate) front_end: ViewCache<TimestampedJson>,
    pub(crate) legacy: ViewCache<TimestampedJson>,
}

/// What all listeners and workers share.
pub struct SharedState {
    pub(crate) limits: RequestLimits,
    pub(crate) cors: Cors,
    pub(crate) is_open: bool,
    /// `None` where users do not sign in.
    pub(crate) browser_sessions: Option<BrowserSessions>,
    trusted_proxies: Vec<Network>,
    /// Whether the warning about an untrusted proxy was logged.
    has_warned_of_proxy: AtomicBool,
    /// The origins of pages that open mode has refused.
    pub(crate) refusal_log: RefusalLog,
    /// Whether this process is about to stop.
    is_draining: AtomicBool,
    pub(crate) ports: HttpPorts,
    pub(crate) stats: ProcessStats,
    /// The memory budget for parsing large bodies.
    pub(crate) parse_budget: ParseBudget,
    /// Bounds concurrent webhook reports per sandbox.
    pub(crate) intake: ReportIntake,
    /// Permits for packing downloads.
    pub(crate) archive_permits: Arc<Semaphore>,
    /// Counts bytes that clients have not read yet.
    pub(crate) unsent: UnsentBytes,
    pub(crate) rate: RateLimiter,
    /// Cached settings responses, keyed by the documents they were made from.
    pub(crate) settings_cache: SettingsCache,
    /// The cached response with all sandbox specs.
    pub(crate) specs_cache: SpecsCache,
    pub(crate) gateway: gateway::SharedGateway,
    /// The metrics of requests and the access to `/metrics`.
    pub(crate) http_metrics: HttpMetrics,
    readiness_cache: ReadinessCache,
    pub(crate) sandbox_isolation: &'static str,
    pub(crate) egress_policy: &'static str,
    /// The configuration that web front ends load, and the one for front ends of the 1.3 line.
    pub(crate) web_client: WebClientDto,
    pub(crate) legacy_web_client: LegacyWebClientDto,
    /// How trace contexts are adopted and propagated, where traces are exported.
    pub(crate) traces: Option<TracePropagation>,
    pub(crate) web_app: Option<WebAppSite>,
    pub(crate) models: Option<Arc<broker::ModelBroker>>,
    pub(crate) git: Option<broker::GitBroker>,
    pub(crate) egress: Option<Arc<broker::EgressProxy>>,
    pub(crate) automations: Option<AutomationsSite>,
}

impl Deref for HttpState {
    type Target = SharedState;

    fn deref(&self) -> &SharedState {
        &self.shared
    }
}

impl HttpState {
    /// Builds the state of the public listener.
    pub fn new(config: &HttpConfig, ports: HttpPorts) -> Self {
        let stats = ProcessStats::start(ports.clock.now());
        let sessions = || BrowserSessions::new(config.addresses.public_url.as_ref());
        let browser_sessions = config.accounts.then(sessions);
        let cors = Cors::new(&config.cors_origins);
        let (limits, open) = (config.limits, config.open);
        let addresses = Addresses::new(&config.addresses, Arc::clone(&ports.fingerprints));
        let gateway =
            gateway::SharedGateway::new(config.gateway.clone(), Arc::clone(&ports.endpoints));
        Self {
            shared: Arc::new(SharedState {
                limits,
                cors,
                is_open: open,
                browser_sessions,
                trusted_proxies: config.trusted_proxies.clone(),
                has_warned_of_proxy: AtomicBool::new(false),
                refusal_log: RefusalLog::default(),
                is_draining: AtomicBool::new(false),
                stats,
                parse_budget: ParseBudget::new(),
                intake: ReportIntake::default(),
                archive_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_ARCHIVES)),
                unsent: UnsentBytes::new(limits.unsent),
                rate: RateLimiter::new(limits.requests_per_second, limits.wrong_keys_per_second),
                settings_cache: SettingsCache::default(),
                specs_cache: SpecsCache::default(),
                gateway,
                http_metrics: HttpMetrics::new(
                    config.metrics_key.as_ref(),
                    config.has_metrics_listener,
                ),
                sandbox_isolation: config.sandbox_isolation,
                egress_policy: config.egress_policy,
                readiness_cache: ReadinessCache::default(),
                web_client: WebClientDto::of(&config.web_client, ports.clock.now())
                    .with_automations(config.automations.is_some()),
                legacy_web_client: LegacyWebClientDto::from(&config.web_client),
                traces: config.traces,
                web_app: config.web_app.clone(),
                models: config.models.clone(),
                git: config.git.clone(),
                egress: config.egress.clone(),
                automations: config.automations.clone(),
                ports,
            }),
            surfaces: Default::default(),
            listener: Listener::Public,
            addresses: Arc::new(addresses),
        }
    }

    /// The gateway's state; one for all workers.
    pub fn gateway(&self) -> &gateway::SharedGateway {
        &self.gateway
    }

    /// The state of the web application, if there is one.
    pub fn web_app(&self) -> Option<&web_app::WebAppSlot> {
        self.web_app.as_ref().map(|site| &site.slot)
    }

    /// Machines whose forwarding headers are trusted. The callback and metrics listeners trust none: a configured network of
    /// containers, which contains the proxy, would also contain the sandboxes.
    pub(crate) fn trusted_proxies(&self) -> &[Network] {
        match self.listener {
            Listener::Public => &self.shared.trusted_proxies,
            Listener::Callback | Listener::Metrics | Listener::Automations => &[],
        }
    }

    /// Whether the warning about an untrusted proxy has not been logged yet. Every request could cause it; it is logged once.
    pub(crate) fn is_first_proxy_warning(&self) -> bool {
        !self.has_warned_of_proxy.swap(true, Ordering::Relaxed)
    }

    /// Changes the requests per second that one key may send; 0 means no limit.
    pub fn set_requests_per_second(&self, requests: u32) {
        self.rate.set_rate(requests);
    }

    /// Makes `/ready` answer 503 and closes connections after their current request, so that load balancers choose another
    /// replica before this one stops.
    pub fn begin_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// The state of the service's parts, at most about a second old.
    pub(crate) async fn checks(&self) -> Arc<[ReadinessCheck]> {
        let (ports, deadline) = (&self.ports, self.limits.ready_deadline);
        self.readiness_cache
            .checks(ports.readiness.as_ref(), ports.clock.as_ref(), deadline)
            .await
    }

    /// Sets the source of the store's pool figures for `/metrics`. Called once; without it, the page has none.
    pub fn set_pool_stats(&self, pools: PoolStatsSource) {
        self.http_metrics.set_pools(pools);
    }

    pub(crate) fn on_listener(mut self, listener: Listener) -> Self {
        self.listener = listener;
        if listener == Listener::Automations
            && let Some(site) = &self.automations
        {
            self.addresses = Arc::new(self.addresses.below(&site.internal_url));
        }
        self
    }

    /// The routes of this listener; set before the first worker has assembled its routes.
    pub(crate) fn surface(&self) -> Option<&RouteSurface> {
        self.surfaces[self.listener as usize].get()
    }

    pub(crate) fn set_surface(&self, document: impl FnOnce() -> RouteSurface) {
        self.surfaces[self.listener as usize].get_or_init(document);
    }
}
