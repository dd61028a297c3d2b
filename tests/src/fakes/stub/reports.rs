//! Webhook reports to the service, in order, each sent once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::faults::Faults;
use super::identity::Identity;

/// URL and key for reports.
#[derive(Debug, Clone)]
pub(super) struct ReportTarget {
    pub(super) base: String,
    pub(super) key: String,
}

/// Queues reports without waiting.
#[derive(Debug, Clone)]
pub(super) struct ReportQueue(mpsc::UnboundedSender<(String, Value)>);

impl ReportQueue {
    pub(super) fn start(identity: Arc<Identity>, faults: Faults) -> Self {
        let (sender, mut inbox) = mpsc::unbounded_channel::<(String, Value)>();
        let http = crate::client::http();
        let deliver = async move {
            while let Some((path, body)) = inbox.recv().await {
                let target = identity.target();
                let Some(target) = target.filter(|_| !faults.has("no-webhooks")) else {
                    continue;
                };
                let request = http
                    .post(format!("{}/{path}", target.base))
                    .header("X-Session-API-Key", &target.key)
                    .timeout(Duration::from_secs(10))
                    .json(&body);
                // A report is lost if the service does not respond; the service must fetch it.
                let _ = request.send().await;
            }
        };
        super::server::spawn(deliver);
        Self(sender)
    }

    pub(super) fn post(&self, path: String, body: Value) {
        // The worker runs as long as the process.
        let _ = self.0.send((path, body));
    }
}
