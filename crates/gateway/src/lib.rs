//! Forwards requests that came in over actix to a server behind: HTTP as a stream both ways, and upgraded connections
//! (web sockets) as bytes.
//!
//! **Knows** HTTP/1.1 on both sides: which headers end at a hop, bodies, upgrades, deadlines, and how many may be under way.
//! **Must never know** who may ask for what, a store, or what is spoken behind: [`Gateway::forward`] is told where to.
//!
//! * No body is collected: at most [`GatewayLimits::max_chunks`] pieces of an upload and two of an answer are in memory, and whoever is
//!   slow slows the other side down.
//! * Connections are pooled for each worker, so that no request changes threads on its way.
//! * What a client sent to us is not for the server behind: keys, cookies and what proxies said are taken off; what is to be
//!   there is set by [`ForwardTarget::headers`].

mod timers;
mod tasks;
mod download;
mod error;
mod forward;
mod frames;
mod headers;
mod limits;
mod meter;
mod fast_path;
mod pool;
mod replay_stream;
mod tunnel;
mod unauthenticated;
mod revocation;
mod upload;

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue};
use endpoint_guard::EndpointGuard;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use error::ForwardError;
pub use forward::is_websocket_upgrade;
pub use limits::GatewayLimits;
pub use meter::{GatewayMetrics, GatewayCounts};
pub use revocation::Revocation;

use limits::ForwardSlots;
use pool::Pool;
use unauthenticated::UnauthenticatedTunnels;

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct ForwardTarget {
    /// What is limited together, one sandbox; see [`GatewayLimits::max_requests_per_sandbox`]. A connection is used for it once the
    /// [`EndpointGuard`] has proven that it is this one's. Letters, digits, `-` and `_`.
    pub sandbox: Arc<str>,
    /// What has a share of all slots, for example all sandboxes of one user; see [`GatewayLimits::max_requests_per_owner`].
    pub owner: Arc<str>,
    /// The client's address, if the client of a tunnel authenticates to the server behind in its first frame: until then
    /// it is not known whether it may, and it takes none of the slots of the sandbox and the owner.
    pub unauthenticated: Option<IpAddr>,
    /// Scheme, host and port; `http` only.
    pub base_url: Url,
    /// The path and query to ask for, as they go on the wire. Holds no key that is not for the server behind.
    pub path_and_query: String,
    /// Set on the request, in the place of what the client may have sent under these names: the key of the server behind,
    /// `X-Forwarded-…`, `X-Request-Id`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether cookies may pass, in both directions. Only for a server that has a path of its own.
    pub cookies: bool,
    /// What a `Location` on the server behind gets before its path, so that clients find it: the path under which the server
    /// is shown, without a slash at its end.
    pub prefix: String,
}

/// What all workers share.
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
    /// Nothing is under way.
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

    /// What was forwarded so far, for metrics.
    pub fn meter(&self) -> &GatewayMetrics {
        &self.meter
    }

    /// Ends open tunnels, so that a service that stops has nothing to wait for. Clients come back by themselves.
    pub fn end_tunnels(&self) {
        self.stopping.cancel();
    }
}

/// Forwards requests; one for each worker, because its connections live on the worker's thread.
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
