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
mod shared;
mod target;
mod tasks;
mod tunnel;
mod upload;
mod upstream;

pub use error::ForwardError;
pub use forward::{EnvelopedRequest, Gateway, is_websocket_upgrade};
pub use limits::GatewayLimits;
pub use meter::{GatewayCounts, GatewayMetrics};
pub use revocation::Revocation;
pub use shared::SharedGateway;
pub use target::ForwardTarget;
