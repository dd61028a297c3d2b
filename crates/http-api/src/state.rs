//! What every request handler shares: the seam between this crate and the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use application::settings::ViewCache;
use application::trace::TracePropagation;
use domain::clock::Clock;
use domain::id::IdGenerator;
use domain::network::Network;
use domain::vault::Fingerprints;
use endpoint_guard::EndpointGuard;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::addresses::{AddressConfig, Addresses};
use crate::dto::timestamped::TimestampedJson;
use crate::dto::configuration::web_client::{LegacyWebClientDto, WebClient, WebClientDto};
use crate::extract::{Authenticator, ReportIntake, ParseBudget};
use crate::metrics::{HttpMetrics, PoolStatsSource};
use crate::middleware::Cors;
use crate::openapi::RouteSurface;
use crate::rate::RateLimiter;
use crate::readiness::{Check, ReadinessCache, Readiness};
use crate::process_stats::ProcessStats;
use crate::routes::SpecsCache;
use crate::unsent_bytes::{UnsentBytes, UnsentLimits};

/// Bounds on what a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of a user's request, in bytes.
    pub body: usize,
    /// Largest body of a webhook, in bytes: events carry what tools printed.
    pub webhook_body: usize,
    /// Requests that may be sent with one key in a second; 0: any number.
    pub requests_per_second: u32,
    /// Wrong keys that one address may try in a second; 0: any number.
    pub wrong_keys_per_second: u32,
    /// Longest wait for a whole body.
    pub body_deadline: Duration,
    /// Longest look at whether everything works, for `/ready`.
    pub ready_deadline: Duration,
    /// Longest wait for a client that takes nothing of a download.
    pub stalled_deadline: Duration,
    /// Time between two questions whether the caller of a long answer (stream, log, download, socket) still may have it. A key
    /// is remembered for a second, so what it opened ends within this time and a second after it was revoked.
    pub access_recheck_interval: Duration,
    /// Bytes of answers that clients have not read yet.
    pub unsent: UnsentLimits,
}

/// Pages of downloads that are read and packed at the same time: each keeps a core busy, and its events in memory.
const MAX_CONCURRENT_ARCHIVES: usize = 2;

impl Default for Limits {
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
    pub limits: Limits,
    /// Origins whose pages may call from a browser: exact, or with `*` as the port (`http://localhost:*`).
    pub cors_origins: Vec<String>,
    /// Whether requests without a key are the local user's. Pages of other origins are then refused outright, because
    /// a browser would send their requests with that user's rights.
    pub open: bool,
    /// The addresses that clients use; an open service refuses other names (see `middleware::open`).
    pub addresses: AddressConfig,
    /// Machines whose forwarding headers are believed; see [`ClientAddress`](crate::extract::ClientAddress).
    pub trusted_proxies: Vec<Network>,
    /// Bounds on what is forwarded to sandboxes.
    pub gateway: gateway::GatewayLimits,
    /// The key that `/metrics` needs; without one, everybody may read it.
    pub metrics_key: Option<SecretString>,
    /// Whether there is a [`Listener::Metrics`]: where everybody comes, `/metrics` is then there only with the key.
    pub has_metrics_listener: bool,
    /// What web front ends are told.
    pub web_client: WebClient,
    /// How traces are handed on; `None` where none are exported.
    pub traces: Option<TracePropagation>,
}

/// What the surface needs from outside.
#[derive(Clone)]
pub struct HttpPorts {
    /// Tells callers by their keys.
    pub authenticator: Arc<dyn Authenticator>,
    /// Answers `/ready`.
    pub readiness: Arc<dyn Readiness>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Request ids.
    pub ids: Arc<dyn IdGenerator>,
    /// Signs addresses.
    pub fingerprints: Arc<dyn Fingerprints>,
    /// Proves of connections to agent servers that their sandboxes have accepted them.
    pub endpoints: Arc<dyn EndpointGuard>,
}

/// Shared by all workers; cheap to clone.
#[derive(Clone)]
pub struct HttpState {
    shared: Arc<SharedState>,
    /// One per door: what one offers is not what another does.
    surfaces: [Arc<OnceLock<RouteSurface>>; 3],
    listener: Listener,
}

/// For whom a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Users, and whoever else reaches the service: everything is there.
    Public,
    /// Sandboxes, on an address that only they should use: what takes a sandbox's key, and nothing else.
    Callback,
    /// Whoever watches over the service, inside the operator's network: `/metrics` without a key, and `/alive`.
    Metrics,
}

/// What both APIs show of settings.
#[derive(Default)]
pub(crate) struct SettingsCache {
    pub(crate) v1: ViewCache<TimestampedJson>,
    pub(crate) legacy: ViewCache<TimestampedJson>,
}

struct SharedState {
    limits: Limits,
    cors: Cors,
    open: bool,
    addresses: Addresses,
    trusted_proxies: Vec<Network>,
    /// Whether forwarding headers of a machine that is not trusted were spoken of.
    has_warned_of_proxy: AtomicBool,
    /// Whether this process is about to stop.
    is_draining: AtomicBool,
    ports: HttpPorts,
    stats: ProcessStats,
    parse_budget: ParseBudget,
    intake: ReportIntake,
    archive_permits: Arc<Semaphore>,
    unsent: UnsentBytes,
    rate: RateLimiter,
    settings_cache: SettingsCache,
    specs_cache: SpecsCache,
    gateway: gateway::SharedGateway,
    http_metrics: HttpMetrics,
    readiness_cache: ReadinessCache,
    web_client: (WebClientDto, LegacyWebClientDto),
    traces: Option<TracePropagation>,
}

impl HttpState {
    /// Takes what the composition root has put together.
    pub fn new(config: &HttpConfig, ports: HttpPorts) -> Self {
        let stats = ProcessStats::start(ports.clock.now());
        let cors = Cors::new(&config.cors_origins);
        let web_client = (
            WebClientDto::of(&config.web_client, ports.clock.now()),
            LegacyWebClientDto::from(&config.web_client),
        );
        let (limits, open) = (config.limits, config.open);
        let addresses = Addresses::new(&config.addresses, Arc::clone(&ports.fingerprints));
        let gateway = gateway::SharedGateway::new(config.gateway.clone(), Arc::clone(&ports.endpoints));
        Self {
            shared: Arc::new(SharedState {
                limits,
                cors,
                open,
                addresses,
                trusted_proxies: config.trusted_proxies.clone(),
                has_warned_of_proxy: AtomicBool::new(false),
                is_draining: AtomicBool::new(false),
                ports,
                stats,
                parse_budget: ParseBudget::new(),
                intake: ReportIntake::default(),
                archive_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_ARCHIVES)),
                unsent: UnsentBytes::new(limits.unsent),
                rate: RateLimiter::new(limits.requests_per_second, limits.wrong_keys_per_second),
                settings_cache: SettingsCache::default(),
                specs_cache: SpecsCache::default(),
                gateway,
                http_metrics: HttpMetrics::new(config.metrics_key.as_ref(), config.has_metrics_listener),
                readiness_cache: ReadinessCache::default(),
                web_client,
                traces: config.traces,
            }),
            surfaces: Default::default(),
            listener: Listener::Public,
        }
    }

    /// Bounds on requests.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Tells callers by their keys.
    pub fn authenticator(&self) -> &dyn Authenticator {
        self.shared.ports.authenticator.as_ref()
    }

    /// What is needed from outside.
    pub fn ports(&self) -> &HttpPorts {
        &self.shared.ports
    }

    /// The memory for reading large bodies; one for all workers.
    pub(crate) fn parse_budget(&self) -> &ParseBudget {
        &self.shared.parse_budget
    }

    /// The turns of sandboxes that report; one count for all workers.
    pub(crate) fn intake(&self) -> &ReportIntake {
        &self.shared.intake
    }

    /// Turns in packing downloads; one count for all workers.
    pub(crate) fn archive_permits(&self) -> &Arc<Semaphore> {
        &self.shared.archive_permits
    }

    /// Bytes that clients have not read yet; one count for all workers.
    pub(crate) fn unsent(&self) -> &UnsentBytes {
        &self.shared.unsent
    }

    /// What web front ends are told.
    pub(crate) fn web_client(&self) -> WebClientDto {
        self.shared.web_client.0.clone()
    }

    /// The same for front ends of the 1.3 line.
    pub(crate) fn legacy_web_client(&self) -> LegacyWebClientDto {
        self.shared.web_client.1.clone()
    }

    /// Answers with settings, by the documents that they were made from; one memory for all workers.
    pub(crate) fn settings_cache(&self) -> &SettingsCache {
        &self.shared.settings_cache
    }

    /// The answer with the templates; one memory for all workers.
    pub(crate) fn specs_cache(&self) -> &SpecsCache {
        &self.shared.specs_cache
    }

    /// How many requests users may send; one count for all workers.
    pub(crate) fn rate(&self) -> &RateLimiter {
        &self.shared.rate
    }

    /// What is forwarded to sandboxes; counted for all workers.
    pub fn gateway(&self) -> &gateway::SharedGateway {
        &self.shared.gateway
    }

    pub(crate) fn cors(&self) -> &Cors {
        &self.shared.cors
    }

    pub(crate) fn is_open(&self) -> bool {
        self.shared.open
    }

    /// Makes the addresses that clients are told.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.shared.addresses
    }

    /// How traces are handed on, if they are.
    pub(crate) fn traces(&self) -> Option<TracePropagation> {
        self.shared.traces
    }

    /// Machines whose forwarding headers are believed. Where sandboxes come, none: a network of containers may have been
    /// named because the proxy is one.
    pub(crate) fn trusted_proxies(&self) -> &[Network] {
        match self.listener {
            Listener::Public => &self.shared.trusted_proxies,
            Listener::Callback | Listener::Metrics => &[],
        }
    }

    /// Whether it is the first time that this is asked: what every request could say is said once.
    pub(crate) fn is_first_proxy_warning(&self) -> bool {
        !self.shared.has_warned_of_proxy.swap(true, Ordering::Relaxed)
    }

    /// Users may send so many requests a second from now on; 0: any number.
    pub fn set_requests_per_second(&self, requests: u32) {
        self.shared.rate.set_rate(requests);
    }

    /// From now on `/ready` answers 503, and no connection is kept for another request: whoever chooses among several
    /// services is to choose another one, before this one stops.
    pub fn begin_draining(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::Relaxed)
    }

    /// Whether the parts of the service work, as of a moment ago.
    pub(crate) async fn checks(&self) -> Arc<[Check]> {
        let (ports, deadline) = (self.ports(), self.limits().ready_deadline);
        let readiness_cache = &self.shared.readiness_cache;
        readiness_cache
            .checks(ports.readiness.as_ref(), ports.clock.as_ref(), deadline)
            .await
    }

    /// What is counted, and who may read it.
    pub(crate) fn http_metrics(&self) -> &HttpMetrics {
        &self.shared.http_metrics
    }

    /// Where `/metrics` learns of the store's pools. Said once; without it, it tells of none.
    pub fn set_pool_stats(&self, pools: PoolStatsSource) {
        self.shared.http_metrics.set_pools(pools);
    }

    pub(crate) fn stats(&self) -> &ProcessStats {
        &self.shared.stats
    }

    /// The same state behind another door.
    pub(crate) fn on_listener(mut self, listener: Listener) -> Self {
        self.listener = listener;
        self
    }

    pub(crate) fn listener(&self) -> Listener {
        self.listener
    }

    /// The documented surface; set before the first worker has put its routes together.
    pub(crate) fn surface(&self) -> Option<&RouteSurface> {
        self.surfaces[self.listener as usize].get()
    }

    pub(crate) fn set_surface(&self, document: impl FnOnce() -> RouteSurface) {
        self.surfaces[self.listener as usize].get_or_init(document);
    }
}
