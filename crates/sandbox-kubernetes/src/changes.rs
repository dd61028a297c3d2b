//! Tells waiting operations about changes of objects.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Changes that a waiting operation may lag behind.
const MAX_BUFFERED_CHANGES: usize = 1_024;

/// A change of objects of this name.
#[derive(Debug, Clone)]
struct NamedChange {
    name: Arc<str>,
    /// Whether their pod runs now, or something of them has ended: no step of a start.
    is_outcome: bool,
}

/// Changes of objects.
#[derive(Debug)]
pub(crate) struct Changes(broadcast::Sender<NamedChange>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::channel(MAX_BUFFERED_CHANGES).0)
    }
}

impl Changes {
    /// The changes from now on.
    pub(crate) fn subscribe(&self) -> ChangeWaiter {
        ChangeWaiter(self.0.subscribe())
    }

    pub(crate) fn report(&self, name: &str, is_outcome: bool) {
        let name = name.into();
        // An error means that nothing waits.
        let _ = self.0.send(NamedChange { name, is_outcome });
    }
}

#[derive(Debug)]
pub(crate) struct ChangeWaiter(broadcast::Receiver<NamedChange>);

impl ChangeWaiter {
    /// Waits for a change of objects of this name, or until the time has passed. They may have changed in any case.
    pub(crate) async fn next(&mut self, name: &str, limit: Duration) {
        self.wait(|change| *change.name == *name, limit).await;
    }

    /// Waits until the pod of this name runs, or something of this name has ended. `false` if the time has passed, or if
    /// changes were missed.
    pub(crate) async fn next_outcome(&mut self, name: &str, limit: Duration) -> bool {
        self.wait(|change| change.is_outcome && *change.name == *name, limit)
            .await
    }

    async fn wait(&mut self, is_wanted: impl Fn(&NamedChange) -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            match timeout_at(deadline, self.0.recv()).await {
                Ok(Ok(change)) if is_wanted(&change) => return true,
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Lagged(_))) => return false,
                Ok(Err(RecvError::Closed)) | Err(_) => {
                    sleep_until(deadline).await;
                    return false;
                }
            }
        }
    }
}
