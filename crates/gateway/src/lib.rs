//! Forwards actix requests to an upstream server: HTTP as a stream in both directions, and upgraded connections
//! (`WebSockets`) as bytes.
//!
//! **Knows** HTTP/1.1 on both sides: hop-by-hop headers, bodies, upgrades, deadlines and limits of concurrency.
//! **Must never know** permissions, a store, or the protocol of the upstream: the caller of [`Gateway::forward`] names the
//! target.
//!
//! * No body is collected. At most [`GatewayLimits::max_chunks`] chunks of an upload and two of a response are in memory; a
//!   slow side slows the other one down.
//! * Connections are pooled for each worker, so that no request changes threads.
//! * The gateway removes headers that are meant for the service: keys, cookies and headers of proxies.
//!   [`ForwardTarget::headers`] sets those for the upstream.

mod download;
mod error;
mod forward;
mod headers;
mod limits;
mod meter;
mod revocation;
mod tasks;
mod tunnel;
mod upload;
mod upstream;

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue};
use endpoint_guard::EndpointGuard;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use error::ForwardError;
pub use forward::is_websocket_upgrade;
pub use limits::GatewayLimits;
pub use meter::{GatewayCounts, GatewayMetrics};
pub use revocation::Revocation;

use limits::ForwardSlots;
use tunnel::unauthenticated::UnauthenticatedTunnels;
use upstream::Pool;

/// The destination of a request.
#[derive(Debug, Clone)]
pub struct ForwardTarget {
    /// The sandbox, see [`GatewayLimits::max_requests_per_sandbox`]. A connection is used for it once the [`EndpointGuard`]
    /// has proven that the port belongs to it. Letters, digits, `-` and `_`.
    pub sandbox: Arc<str>,
    /// The owner, whose sandboxes share a limit; see [`GatewayLimits::max_requests_per_owner`].
    pub owner: Arc<str>,
    /// The client's address, if the client of a tunnel authenticates to the upstream in its first frame. Until then the
    /// tunnel takes no slot of the sandbox and the owner.
    pub unauthenticated: Option<IpAddr>,
    /// Scheme, host and port; `http` only.
    pub base_url: Url,
    /// Path and query as they go on the wire. They contain no key of the service.
    pub path_and_query: String,
    /// Headers of the upstream request, which replace the client's: the key of the upstream, `X-Forwarded-…`,
    /// `X-Request-Id`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether cookies pass in both directions. Only for an upstream with its own path prefix.
    pub cookies: bool,
    /// The public path prefix of the upstream, without a slash at its end. Prepended to the path of a `Location`.
    pub prefix: String,
}

/// The state that all workers share.
#[derive(Clone)]
pub struct SharedGateway {
    guard: Arc<dyn EndpointGuard>,
    limits: GatewayLimits,
    slots: Arc<ForwardSlots>,
    unauthenticated: Arc<UnauthenticatedTunnels>,
    meter: Arc<GatewayMetrics>,
    stopping: CancellationToken,
}

impl SharedGateway {
    /// A gateway without requests.
    pub fn new(limits: GatewayLimits, guard: Arc<dyn EndpointGuard>) -> Self {
        Self {
            guard,
            slots: Arc::new(ForwardSlots::new(&limits)),
            unauthenticated: Arc::new(UnauthenticatedTunnels::new(&limits)),
            limits,
            meter: Arc::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// Counters for metrics.
    pub fn meter(&self) -> &GatewayMetrics {
        &self.meter
    }

    /// Closes open tunnels, so that the shutdown does not wait for them. Clients reconnect.
    pub fn end_tunnels(&self) {
        self.stopping.cancel();
    }
}

/// Forwards requests. Each worker has its own, because connections belong to the worker's thread.
#[derive(Clone)]
pub struct Gateway {
    shared: SharedGateway,
    pool: Pool,
}

impl Gateway {
    /// A gateway without connections.
    pub fn new(shared: SharedGateway) -> Self {
        let pool = Pool::new(&shared.limits, Arc::clone(&shared.guard));
        Self { shared, pool }
    }
}
