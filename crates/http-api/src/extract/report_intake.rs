//! Bounds concurrent webhook reports per sandbox: a sandbox that floods delays only its own.

use std::time::Duration;

use actix_web::http::StatusCode;
use application::keyed_semaphore::{KeyedPermit, KeyedSemaphore};
use domain::id::SandboxId;

use crate::problem::Problem;

/// Reports of one sandbox that are parsed and stored at the same time. Their bodies are in memory.
const MAX_CONCURRENT_REPORTS: usize = 8;
/// These and the waiting ones, of which only the head has been read.
const MAX_QUEUED_REPORTS: usize = 32;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct ReportIntake(KeyedSemaphore<SandboxId>);

impl Default for ReportIntake {
    fn default() -> Self {
        Self(KeyedSemaphore::new(
            MAX_CONCURRENT_REPORTS,
            MAX_QUEUED_REPORTS,
        ))
    }
}

impl ReportIntake {
    /// Waits for a permit; 503 when too many wait, or after the timeout. Agent servers repeat refused reports a few times; the
    /// rest is later read from their log.
    pub(super) async fn acquire(&self, sandbox: &SandboxId) -> Result<KeyedPermit, Problem> {
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, self.0.acquire(sandbox)).await;
        turn.ok().flatten().ok_or_else(|| {
            tracing::warn!(sandbox.id = %sandbox, "report refused: too many concurrent reports of this sandbox");
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many reports from this sandbox are being processed. Send the report again later.",
            )
        })
    }
}
