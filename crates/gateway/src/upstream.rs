//! Pooled connections to upstreams.
//!
//! Each worker has a pool of its own, so the tasks of its connections run on the worker's thread.

use std::sync::Arc;

use endpoint_guard::{Connector, EndpointGuard};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::error::ForwardError;
use crate::limits::GatewayLimits;
use crate::upload::UploadBody;

/// Unanswered keep-alive probes before a connection is closed.
const KEEP_ALIVE_TRIES: u32 = 4;

/// The connections of one worker, by sandbox, host and port.
#[derive(Clone)]
pub(crate) struct UpstreamClient(Client<Connector, UploadBody>);

impl UpstreamClient {
    pub(crate) fn new(limits: &GatewayLimits, guard: Arc<dyn EndpointGuard>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(limits.tcp_keep_alive));
        tcp.set_keepalive_interval(Some(limits.tcp_keep_alive));
        tcp.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        let client = Client::builder(TokioExecutor::new())
            .http1_max_buf_size(limits.read_buffer_bytes)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.pool_idle_timeout)
            .pool_max_idle_per_host(limits.max_idle_connections)
            .build(Connector::new(tcp, limits.connect_timeout, guard));
        Self(client)
    }

    /// Sends a request over an idle connection, or a new one, and waits for the head of the response. A request that a
    /// connection did not start to send goes over another one.
    ///
    /// # Errors
    /// [`ForwardError::Unreachable`] without a connection, [`ForwardError::UpstreamDisconnected`] if it ended before the response.
    pub(crate) async fn send(
        &self,
        request: Request<UploadBody>,
    ) -> Result<Response<Incoming>, ForwardError> {
        self.0.request(request).await.map_err(|error| {
            if error.is_connect() {
                ForwardError::Unreachable(error.into())
            } else {
                ForwardError::UpstreamDisconnected(error.into())
            }
        })
    }
}
