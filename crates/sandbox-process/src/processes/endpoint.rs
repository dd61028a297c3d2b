//! Proves that a listening socket belongs to a sandbox before a key is sent there.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use domain::id::SandboxId;
use endpoint_guard::{EndpointGuard, GuardError, ListeningSocket, look_up};
use tokio::net::TcpStream;

use crate::ProcessSandboxes;
use crate::backend::ProcessInner;
use crate::confinement::control;
use crate::files::state::ProcessState;
use crate::processes::marker;
use crate::processes::proc::{self, ProcessKey};

/// Processes to inspect: the agent server is the main process or a child of it.
const MAX_PROCESSES: usize = 64;

#[async_trait]
impl EndpointGuard for ProcessSandboxes {
    async fn prove(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<ListeningSocket>, GuardError> {
        let Ok(id) = SandboxId::parse(sandbox) else {
            return Err(GuardError::HeldByAnother(address.port()));
        };
        self.inner().prove(&id, address).await.map(Some)
    }

    async fn connect(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<TcpStream>, GuardError> {
        let Ok(id) = SandboxId::parse(sandbox) else {
            return Err(GuardError::HeldByAnother(address.port()));
        };
        self.inner().connect_confined(&id, address.port()).await
    }
}

impl ProcessInner {
    /// Connects to a port in the network of a confined sandbox. `None`: the sandbox is not confined.
    pub(crate) async fn connect_confined(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<Option<TcpStream>, GuardError> {
        let unknown = |source| GuardError::Unknown { port, source };
        match control::connect_to(&self.paths(id).control, port).await {
            Ok(stream) => Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Err(GuardError::NotListening(port))
            }
            Err(error) => Err(unknown(error)),
        }
    }

    /// The socket that listens at `address` on this machine, if the sandbox holds it.
    pub(crate) async fn prove(
        self: &Arc<Self>,
        id: &SandboxId,
        address: SocketAddr,
    ) -> Result<ListeningSocket, GuardError> {
        let port = address.port();
        let unknown = |source| GuardError::Unknown { port, source };
        let socket = look_up(address).await.map_err(unknown)?;
        let socket = socket.ok_or(GuardError::NotListening(port))?;
        // The semaphore is never closed. It keeps threads free for the store when many requests open connections.
        let _permit = self.proofs.acquire().await;
        let (inner, id) = (Arc::clone(self), id.clone());
        let is_held = self
            .tasks
            .runtime
            .spawn_blocking(move || inner.holds(&id, socket));
        match is_held.await {
            Ok(true) => Ok(socket),
            Ok(false) => Err(GuardError::HeldByAnother(port)),
            Err(error) => Err(unknown(error.into())),
        }
    }

    /// Whether the main process or a descendant holds the socket. The marker proves nothing, because any process can be
    /// started with it. Blocks.
    fn holds(&self, id: &SandboxId, socket: ListeningSocket) -> bool {
        let has_socket = |key| proc::has_socket(key, socket.inode);
        let Some(main) = self.main_process(id) else {
            // Another service with the same database may have started it on this machine, and its files are not readable.
            // Then a process of the same account with that service's marker counts.
            let is_of_account = socket.uid == rustix::process::geteuid().as_raw();
            let others = || marker::of_other_instances(&self.config.instance, id);
            return is_of_account && others().into_iter().any(has_socket);
        };
        let descendants = || marker::tree(main).into_iter().take(MAX_PROCESSES);
        has_socket(main) || descendants().any(|stat| has_socket(stat.key))
    }

    /// The main process; until the service has adopted it, the one in the state file. Blocks.
    fn main_process(&self, id: &SandboxId) -> Option<ProcessKey> {
        if let Some(key) = self.tracked_key(id).filter(|key| proc::is_alive(*key)) {
            return Some(key);
        }
        let state = ProcessState::load(&self.paths(id).state())?;
        state.find_process(&self.marker(id))
    }
}
