//! The tasks of a backend and the facts that they report.

use std::sync::Arc;

use domain::sandbox::{BackendFact, BackendReachability, SandboxError};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::runtime::Handle;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Facts that a slow watcher may lag behind.
const MAX_BUFFERED_FACTS: usize = 1024;

/// Runs the work of a backend, which outlives requests, and passes facts to its watchers.
#[derive(Debug, Clone)]
pub struct BackendTasks {
    /// The runtime that was current when the backend was opened.
    pub runtime: Handle,
    /// Ends the watchers when the backend is dropped. The sandboxes keep running.
    pub closed: CancellationToken,
    /// Facts are shared, because the channel allocates its whole capacity in advance.
    facts: broadcast::Sender<Arc<BackendFact>>,
}

impl BackendTasks {
    /// Tasks on the current runtime, which must outlive the backend.
    pub fn new() -> Result<Self, SandboxError> {
        let runtime = Handle::try_current();
        Ok(Self {
            runtime: runtime.map_err(SandboxError::other)?,
            closed: CancellationToken::new(),
            facts: broadcast::channel(MAX_BUFFERED_FACTS).0,
        })
    }

    /// Runs a task until it ends or the backend is dropped.
    pub fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let closed = self.closed.clone();
        self.runtime.spawn(async move {
            closed.run_until_cancelled(task).await;
        });
    }

    /// Runs an operation to its end, even if the caller gives up. It logs in the caller's span.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let task = self.runtime.spawn(work.in_current_span());
        task.await.map_err(SandboxError::other)?
    }

    /// Sends a fact to all watchers, if any.
    pub fn report(&self, fact: BackendFact) {
        let _ = self.facts.send(Arc::new(fact));
    }

    /// The facts from now on. Ends with the backend, also while tasks of it still run.
    pub fn watch(&self) -> BoxStream<'static, BackendFact> {
        let facts = self.facts.subscribe();
        stream::unfold(facts, |mut facts| async move {
            loop {
                match facts.recv().await {
                    Ok(fact) => return Some((Arc::unwrap_or_clone(fact), facts)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            missed,
                            "a watcher of sandboxes was too slow and missed facts; the next comparison with the backend finds them"
                        );
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .take_until(self.closed.clone().cancelled_owned())
        .boxed()
    }

    /// What the backend knows of its reachability, as soon as it knows it, and then its changes.
    pub fn watch_reachability(
        &self,
        reachability: &watch::Sender<Option<BackendReachability>>,
    ) -> BoxStream<'static, BackendReachability> {
        let mut reachability = reachability.subscribe();
        reachability.mark_changed();
        stream::unfold(reachability, |mut reachability| async move {
            loop {
                reachability.changed().await.ok()?;
                let current = reachability.borrow_and_update().clone();
                if let Some(current) = current {
                    return Some((current, reachability));
                }
            }
        })
        .take_until(self.closed.clone().cancelled_owned())
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tracing::Span;

    use super::*;

    #[tokio::test]
    async fn an_operation_runs_in_the_span_of_its_caller() {
        let _spans = tracing::subscriber::set_default(tracing_subscriber::registry());
        let tasks = BackendTasks::new().unwrap();
        let work = async { Ok(Span::current().metadata().map(tracing::Metadata::name)) };
        let task = tasks.detached(work);
        let span = task.instrument(tracing::info_span!("start")).await;
        assert_eq!(span.unwrap(), Some("start"));
    }
}
