//! Renewal of leases.

use std::time::Duration;

use domain::error::{StoreError, chain};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Pause between two renewals while the store is busy.
const RENEW_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Renews a lease of `length` until `over` is cancelled (`true`), or until it is lost: another process has it, or it
/// cannot be renewed in time (`false`). `until` is its end, counted from before the request, so that no other process
/// can have it while this one acts. `over` never cuts off a renewal, which might reach the store after a release.
pub(crate) async fn renew_until_over<F>(
    name: &str,
    length: Duration,
    mut until: Instant,
    over: &CancellationToken,
    renew: impl Fn() -> F,
) -> bool
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let mut pause = length / 3;
    loop {
        let pausing = over.run_until_cancelled(tokio::time::sleep(pause));
        if pausing.await.is_none() {
            return true;
        }
        let asked = Instant::now();
        match tokio::time::timeout_at(until, renew()).await {
            Ok(Ok(true)) => (until, pause) = (asked + length, length / 3),
            Ok(Ok(false)) | Err(_) => return false,
            // A busy store does not lose the lease before it expires.
            Ok(Err(error)) => {
                tracing::warn!(lease = name, error = %chain(&error), "cannot renew a lease yet; trying again");
                pause = RENEW_RETRY_INTERVAL;
            }
        }
    }
}
