//! Proves that a port leads to a sandbox's container before a key is sent there.
//!
//! The engine publishes a port by a proxy program that listens on it, or by firewall rules without a listener. Once the
//! container is gone, any account of the machine can listen on the port, and the engine can assign it to another container.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use domain::id::SandboxId;
use domain::sandbox::BackendState;
use endpoint_guard::{EndpointGuard, GuardError, ListeningSocket, is_local, look_up};

use crate::DockerSandboxes;
use crate::backend::DockerInner;
use crate::engine::errors::EngineError;
use crate::lifecycle::state_cache;

/// Root controls the engine anyway.
const ROOT: u32 = 0;

#[async_trait]
impl EndpointGuard for DockerSandboxes {
    async fn prove(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<ListeningSocket>, GuardError> {
        let (inner, port) = (self.inner(), address.port());
        let unknown = |source| GuardError::Unknown { port, source };
        let engine = inner.engine.user().await.map_err(unknown)?;
        let Some(engine) = engine.filter(|_| is_local(address.ip())) else {
            return Ok(None);
        };
        let socket = look_up(address).await.map_err(unknown)?;
        let is_engines = socket.is_none_or(|socket| socket.uid == engine || socket.uid == ROOT);
        if !is_engines {
            return Err(GuardError::HeldByAnother(port));
        }
        match inner.leads_to(sandbox, port).await {
            Ok(true) => Ok(socket),
            Ok(false) => Err(GuardError::HeldByAnother(port)),
            Err(error) => Err(unknown(io::Error::other(error))),
        }
    }
}

impl DockerInner {
    /// Whether the port belongs to the sandbox. Calls the engine only if the cache does not know.
    async fn leads_to(&self, sandbox: &str, port: u16) -> Result<bool, EngineError> {
        let Ok(id) = SandboxId::parse(sandbox) else {
            return Ok(false);
        };
        if self.states.has_port(&id, port) {
            return Ok(true);
        }
        Ok(match self.observe(&id).await? {
            Some(BackendState::Running(endpoints)) => {
                state_cache::published_ports_of(&endpoints).contains(&port)
            }
            _ => false,
        })
    }
}
