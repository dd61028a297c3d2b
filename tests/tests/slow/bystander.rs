//! A normal user, whose response times are measured while slow clients are connected.

use std::future::Future;
use std::time::{Duration, Instant};

use acceptance::{Client, print_line};
use serde_json::json;
use tokio::time::timeout;

/// Maximum response time on a busy machine. Tests print the usual one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether a request was served: `/ready` has its own deadline, which a busy machine may miss.
pub(super) fn is_served(status: u16, text: &str) -> bool {
    status == 200 || (status == 503 && text.contains("\"Not ready: deadline\""))
}

/// A user, and a sandbox that reports events.
pub(super) struct NormalUser {
    user: Client,
    agent: Client,
    report: String,
}

impl NormalUser {
    pub(super) fn new(user: &Client, agent: Client, report: String) -> Self {
        Self {
            user: user.clone(),
            agent,
            report,
        }
    }

    /// Sends requests while `other` runs.
    pub(super) async fn during<T>(&self, what: &str, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        let mut durations = Vec::new();
        let done = loop {
            let mut requests = std::pin::pin!(self.send_requests());
            tokio::select! {
                biased;
                done = &mut other => {
                    // Requests in progress are answered, too.
                    let last = timeout(REQUEST_TIMEOUT * 4, requests).await;
                    durations.extend(last.unwrap_or_else(|_| panic!("{what}: no response to the last requests")));
                    break done;
                }
                all = &mut requests => durations.extend(all),
            }
        };
        durations.sort_unstable();
        let at = |percent: usize| durations.get(durations.len().saturating_sub(1) * percent / 100);
        print_line(&format!(
            "{what}: {} responses to a normal user, p50 {:?}, p99 {:?}, slowest {:?}",
            durations.len(),
            at(50).copied().unwrap_or_default(),
            at(99).copied().unwrap_or_default(),
            at(100).copied().unwrap_or_default()
        ));
        let slowest = at(100).copied().unwrap_or_default();
        assert!(
            slowest < REQUEST_TIMEOUT,
            "{what}: a response took {slowest:?}"
        );
        done
    }

    async fn send_requests(&self) -> Vec<Duration> {
        let mut durations = Vec::new();
        for path in [
            "/api/v1/settings/profiles",
            "/api/v1/app-conversations/search",
            "/ready",
        ] {
            let started_at = Instant::now();
            let answer = self.user.get(path).await;
            let (status, text) = (answer.status, answer.text);
            assert!(is_served(status, &text), "{path}: {status} {text}");
            durations.push(started_at.elapsed());
        }
        let started_at = Instant::now();
        let report = self.agent.post(&self.report, &json!([])).await;
        assert_eq!(report.status, 200, "a report");
        durations.push(started_at.elapsed());
        tokio::time::sleep(POLL_INTERVAL).await;
        durations
    }
}
