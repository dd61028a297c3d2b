//! How the connections of sandboxes to other machines reach the service.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
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

/// The forward proxy of the service, which decides what a sandbox reaches.
#[async_trait]
pub trait EgressGateway: Debug + Send + Sync {
    /// Serves one connection until it ends. The backend knows for certain that it comes from this sandbox.
    async fn serve(&self, sandbox: &SandboxId, stream: TcpStream);
}

/// The gateway, which the service sets when it is complete. Until then connections wait.
pub type EgressSlot = Arc<OnceLock<Arc<dyn EgressGateway>>>;
