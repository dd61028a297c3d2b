//! How many reports of one sandbox are taken in at once: one that floods keeps its own waiting, and nobody else's.

use std::time::Duration;

use actix_web::http::StatusCode;
use application::keyed_semaphore::{KeyedPermit, KeyedSemaphore};
use domain::id::SandboxId;

use crate::problem::Problem;

/// Reports of one sandbox that are read and stored at the same time. Their bodies are in memory.
const MAX_CONCURRENT_REPORTS: usize = 8;
/// Those and the ones that wait, of which nothing but the head has been read.
const MAX_QUEUED_REPORTS: usize = 32;
/// Longest wait for a turn.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// The turns of this process.
pub(crate) struct ReportIntake(KeyedSemaphore<SandboxId>);

impl Default for ReportIntake {
    fn default() -> Self {
        Self(KeyedSemaphore::new(MAX_CONCURRENT_REPORTS, MAX_QUEUED_REPORTS))
    }
}

impl ReportIntake {
    /// Waits for a turn; 503 when too many wait, or after a while. Agent servers send what was refused a few times more; what
    /// is lost then is read from their log.
    pub(super) async fn turn(&self, sandbox: &SandboxId) -> Result<KeyedPermit, Problem> {
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, self.0.acquire(sandbox)).await;
        turn.ok().flatten().ok_or_else(|| {
            tracing::warn!(sandbox.id = %sandbox, "report refused: too many of this sandbox at once");
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many reports of this sandbox are under way",
            )
        })
    }
}
