//! Serializes the operations on a sandbox within this process. Between processes the engine's unique names do that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::SandboxError;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// The locks of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct ContainerLocks {
    held: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
}

impl ContainerLocks {
    pub(crate) async fn lock(
        &self,
        id: &SandboxId,
        limit: Duration,
    ) -> Result<OwnedMutexGuard<()>, SandboxError> {
        timeout(limit, self.mutex(id).lock_owned())
            .await
            .map_err(|_| SandboxError::TimedOut {
                what: "another operation on this sandbox",
            })
    }

    fn mutex(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        Arc::clone(held.entry(id.clone()).or_default())
    }
}
