//! How the connections of sandboxes to other machines reach the service.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use settings::SettingReader;
use tokio::net::TcpStream;

/// What sandboxes reach beside the service (`egress.policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressPolicy {
    /// What the network of their backend reaches.
    Open,
    /// Listed hosts, through the service.
    AllowList,
    /// Nothing.
    None,
}

impl EgressPolicy {
    /// Reads `egress.policy`.
    pub fn read(reader: &SettingReader<'_>) -> Self {
        let values = [
            ("open", Self::Open),
            ("allow_list", Self::AllowList),
            ("none", Self::None),
        ];
        reader.choice("egress.policy", &values)
    }
}

/// The way of sandboxes to the forward proxy.
#[derive(Debug, Clone)]
pub struct EgressRoute {
    /// The service sets it.
    pub gateway: EgressSlot,
    /// Private networks and addresses that sandboxes reach with [`EgressPolicy::Open`].
    pub reachable_networks: Vec<String>,
}

/// Whether the service sends secrets to their hosts, so that sandboxes have placeholders (`broker.secrets`).
pub fn sends_secrets(reader: &SettingReader<'_>) -> bool {
    reader.switch("broker.secrets")
}

/// The forward proxy of the service, which decides what a sandbox reaches.
#[async_trait]
pub trait EgressGateway: Debug + Send + Sync {
    /// Serves one connection until it ends. The backend knows for certain that it comes from this sandbox.
    async fn serve(&self, sandbox: &SandboxId, stream: TcpStream);

    /// The certificate, as PEM, of the authority with which the proxy stands for hosts that get secrets of the sandbox's owner.
    /// Programs inside must trust it. `None`: the proxy stands for no host.
    ///
    /// # Errors
    /// The certificate cannot be made.
    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError>;
}

/// The gateway, which the service sets when it is complete. Until then connections wait.
pub type EgressSlot = Arc<OnceLock<Arc<dyn EgressGateway>>>;
