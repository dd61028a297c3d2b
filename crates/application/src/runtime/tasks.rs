//! Owned background tasks: counted, cancelled and waited for.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Spawns on the main runtime and joins at the end. (The runtime of an actix worker ends with the worker.)
#[derive(Debug, Clone)]
pub struct BackgroundTasks {
    handle: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl BackgroundTasks {
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Runs a task to its end, or to its next await point after the service stops. The work must be resumable.
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

    /// Runs a task to its end, even while the service stops, within the deadline of [`BackgroundTasks::stop`]. For
    /// short final steps that may be lost.
    pub(crate) fn spawn_uncancelled(&self, work: impl Future<Output = ()> + Send + 'static) {
        let span = tracing::Span::current();
        self.tracker.spawn_on(work.instrument(span), &self.handle);
    }

    /// Cancelled when the service stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Cancels all tasks and waits at most `deadline`. Returns `false` if some did not end in time.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait())
            .await
            .is_ok()
    }
}
