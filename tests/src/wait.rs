//! Waiting for what happens in another process: asked again and again, under a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

/// Pause between two questions. Short, because suites wait often; an answer costs a millisecond or two.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Asks until there is an answer.
///
/// # Panics
/// When there is none within `limit`; the message says what was waited for.
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

/// The same for a condition that is looked up without waiting.
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
