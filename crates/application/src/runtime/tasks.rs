//! Background work that is owned: counted, cancelled and waited for.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Spawns on the main runtime (an actix worker's own runtime dies with the worker) and joins at the end.
#[derive(Debug, Clone)]
pub struct BackgroundTasks {
    handle: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl BackgroundTasks {
    /// Tasks of this runtime.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Runs to its end, or to its next await point once the service stops: whatever it does must be resumable.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let span = tracing::Span::current();
        self.tracker.spawn_on(
            async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = work => {}
                }
            }
            .instrument(span),
            &self.handle,
        );
    }

    /// Runs to its end, also while the service stops: for a last word that takes a moment, and that nobody misses if it
    /// is not said within the deadline of [`BackgroundTasks::stop`].
    pub(crate) fn spawn_uncancelled(&self, work: impl Future<Output = ()> + Send + 'static) {
        let span = tracing::Span::current();
        self.tracker.spawn_on(work.instrument(span), &self.handle);
    }

    /// Cancelled when the service stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Cancels all and waits, at most `deadline`. `false` if some did not end in time.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait())
            .await
            .is_ok()
    }
}
