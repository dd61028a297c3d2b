//! Somebody who goes about their own business, and notes how long it takes.

use std::future::Future;
use std::time::{Duration, Instant};

use acceptance::{Client, print_line};
use serde_json::json;
use tokio::time::timeout;

/// No answer may take longer, however busy the machine; the usual is printed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether a request was served: `/ready` has a deadline of its own, which a machine that is busy with other things may miss.
pub(super) fn is_served(status: u16, text: &str) -> bool {
    status == 200 || (status == 503 && text.contains("\"Not ready: deadline\""))
}

/// A user, and a sandbox that reports.
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

    /// Asks as long as `other` goes on.
    pub(super) async fn during<T>(&self, what: &str, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        let mut took = Vec::new();
        let done = loop {
            let mut asked = std::pin::pin!(self.ask());
            tokio::select! {
                biased;
                done = &mut other => {
                    // What was asked in the meantime is answered, too.
                    let last = timeout(REQUEST_TIMEOUT * 4, asked).await;
                    took.extend(last.unwrap_or_else(|_| panic!("{what}: no answers")));
                    break done;
                }
                all = &mut asked => took.extend(all),
            }
        };
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len().saturating_sub(1) * percent / 100);
        print_line(&format!(
            "{what}: {} answers to a bystander, p50 {:?}, p99 {:?}, slowest {:?}",
            took.len(),
            at(50).copied().unwrap_or_default(),
            at(99).copied().unwrap_or_default(),
            at(100).copied().unwrap_or_default()
        ));
        let slowest = at(100).copied().unwrap_or_default();
        assert!(
            slowest < REQUEST_TIMEOUT,
            "{what}: an answer took {slowest:?}"
        );
        done
    }

    async fn ask(&self) -> Vec<Duration> {
        let mut took = Vec::new();
        for path in [
            "/api/v1/settings/profiles",
            "/api/v1/app-conversations/search",
            "/ready",
        ] {
            let began = Instant::now();
            let answer = self.user.get(path).await;
            let (status, text) = (answer.status, answer.text);
            assert!(is_served(status, &text), "{path}: {status} {text}");
            took.push(began.elapsed());
        }
        let began = Instant::now();
        let taken = self.agent.post(&self.report, &json!([])).await;
        assert_eq!(taken.status, 200, "a report");
        took.push(began.elapsed());
        tokio::time::sleep(POLL_INTERVAL).await;
        took
    }
}
