//! The state that all workers share.

use std::sync::Arc;

use endpoint_guard::EndpointGuard;
use tokio_util::sync::CancellationToken;

use crate::limits::{ForwardSlots, GatewayLimits};
use crate::meter::GatewayMetrics;
use crate::tunnel::unauthenticated::UnauthenticatedTunnels;

/// The state that all workers share.
#[derive(Clone)]
pub struct SharedGateway {
    pub(crate) guard: Arc<dyn EndpointGuard>,
    pub(crate) limits: GatewayLimits,
    pub(crate) slots: Arc<ForwardSlots>,
    pub(crate) unauthenticated: Arc<UnauthenticatedTunnels>,
    pub(crate) meter: Arc<GatewayMetrics>,
    pub(crate) stopping: CancellationToken,
}

impl SharedGateway {
    /// A gateway without requests.
    pub fn new(limits: GatewayLimits, guard: Arc<dyn EndpointGuard>) -> Self {
        let slots = Arc::new(ForwardSlots::new(&limits));
        Self {
            guard,
            meter: Arc::new(GatewayMetrics::new(Arc::clone(&slots))),
            slots,
            unauthenticated: Arc::new(UnauthenticatedTunnels::new(&limits)),
            limits,
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
