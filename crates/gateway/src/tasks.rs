//! Work beside an answer, and between two.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::rt::task::JoinHandle;
use futures::FutureExt;
use tracing::Instrument;

/// A task of this worker that belongs to the body of an answer and ends with it: the body holds this.
pub(crate) struct BodyTask(JoinHandle<()>);

impl BodyTask {
    pub(crate) fn spawn(work: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(work.in_current_span()))
    }

    /// Whether it is over; else it wakes when it is.
    pub(crate) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll_unpin(cx).map(|_| ())
    }
}

/// Work on a connection to a server behind, which goes on after the request and ends by itself, or with the worker.
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
