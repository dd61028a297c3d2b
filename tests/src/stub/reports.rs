//! Posts to the service, one after the other, each once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::faults::Faults;
use super::identity::Identity;

/// Where reports go, and with which key.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) base: String,
    pub(super) key: String,
}

/// Takes reports; never waits.
#[derive(Debug, Clone)]
pub(super) struct Reports(mpsc::UnboundedSender<(String, Value)>);

impl Reports {
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
                // Lost if nobody is there: the service has to fetch it.
                let _ = request.send().await;
            }
        };
        super::server::spawn(deliver);
        Self(sender)
    }

    pub(super) fn post(&self, path: String, body: Value) {
        // The worker lives as long as the process.
        let _ = self.0.send((path, body));
    }
}
