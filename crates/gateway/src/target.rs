//! The destination of a request.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue};
use url::{Position, Url};

/// The destination of a request.
#[derive(Debug, Clone)]
pub struct ForwardTarget {
    /// The sandbox, see [`GatewayLimits::max_requests_per_sandbox`](crate::GatewayLimits::max_requests_per_sandbox). A connection is used for it once the [`EndpointGuard`](endpoint_guard::EndpointGuard)
    /// has proven that the port belongs to it. Letters, digits, `-` and `_`.
    pub sandbox: Arc<str>,
    /// The owner, whose sandboxes share a limit; see [`GatewayLimits::max_requests_per_owner`](crate::GatewayLimits::max_requests_per_owner).
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

impl ForwardTarget {
    /// The authority: host and port.
    pub(crate) fn server(&self) -> &str {
        &self.base_url[Position::BeforeHost..Position::AfterPort]
    }

    /// The key of the pool: a connection serves one sandbox only.
    pub(crate) fn pool_key(&self) -> String {
        format!("{}@{}", self.sandbox, self.server())
    }
}
