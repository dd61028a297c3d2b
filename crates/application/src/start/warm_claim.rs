//! Claims a warm sandbox for a start.

use domain::sandbox::Sandbox;
use domain::start_task::{NewStartTask, SandboxAssignment};
use tokio::time::Instant;

use super::StartService;
use crate::warm::WarmClaim;

/// Entries of [`StartTask::timings`](domain::start_task::StartTask::timings) beside the statuses: milliseconds of a
/// look-up that found a warm sandbox, or none. Absent where the pool is off.
const WARM_SANDBOX_TIMING: &str = "WARM_SANDBOX";
const NO_WARM_SANDBOX_TIMING: &str = "NO_WARM_SANDBOX";

impl StartService {
    /// Replaces the new sandbox of a start by a warm one, if one is available. The caller completes or abandons the
    /// returned claim.
    pub(super) async fn claim_warm(&self, start: &mut NewStartTask) -> Option<WarmClaim> {
        let SandboxAssignment::New(new) = &mut start.assignment else {
            return None;
        };
        let began = Instant::now();
        let claim = self.warm.claim(&new.spec_id).await?;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let name = match claim.sandbox(&new.owner) {
            None => NO_WARM_SANDBOX_TIMING,
            Some(warm) => {
                *new = Sandbox {
                    egress: new.egress.take(),
                    ..warm
                };
                start.task.sandbox_id = new.id.clone();
                start.task.host = new.host.clone();
                WARM_SANDBOX_TIMING
            }
        };
        start.task.timings.insert(name.to_owned(), took);
        Some(claim)
    }
}
