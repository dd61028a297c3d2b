//! Tasks of response bodies.

use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Spawns work for a response body on this worker. The body owns the task; dropping the handle aborts it.
#[expect(
    clippy::disallowed_methods,
    reason = "it belongs to a response body of this worker and ends with it"
)]
pub(crate) fn spawn_body_task(work: impl Future<Output = ()> + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(actix_web::rt::spawn(work.in_current_span()))
}
