//! Waits for states of other processes, by polling under a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

/// Short, because suites wait often, and one poll costs a millisecond or two.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Polls until `ask` returns a value.
///
/// # Panics
/// When none comes within `limit`; the message names `what`.
pub async fn wait_for<T, F>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            started.elapsed() < limit,
            "waited {limit:?} in vain for: {what}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Polls until a condition is true.
///
/// # Panics
/// As [`wait_for`].
pub async fn wait_until(what: &str, limit: Duration, mut is_true: impl FnMut() -> bool) {
    wait_for(what, limit, || {
        let answer = is_true().then_some(());
        async move { answer }
    })
    .await;
}

/// Awaits `work` under a deadline.
///
/// # Panics
/// When it is not done within `limit`; the message names `what`.
pub async fn within<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| panic!("not done within {limit:?}: {what}"))
}
