//! Tasks of response bodies and of pooled connections.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::rt::task::JoinHandle;
use futures::FutureExt;
use tracing::Instrument;

/// A task of this worker that works for a response body. The body owns it; dropping the body aborts the task.
pub(crate) struct BodyTask(JoinHandle<()>);

impl BodyTask {
    pub(crate) fn spawn(work: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(work.in_current_span()))
    }

    /// Whether the task has finished; otherwise registers the waker.
    pub(crate) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll_unpin(cx).map(|_| ())
    }
}

/// Spawns work on an upstream connection. The task outlives the request and ends with the connection or the worker.
pub(crate) fn spawn_connection_task(work: impl Future<Output = ()> + 'static) {
    drop(spawn_local(work));
}

#[expect(
    clippy::disallowed_methods,
    reason = "it belongs to a connection of this worker and ends with it"
)]
fn spawn_local(work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    actix_web::rt::spawn(work)
}

impl Drop for BodyTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
