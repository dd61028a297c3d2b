//! An automations service that this service does not run.

use std::time::Duration;

use http_api::AutomationsStatus;
use tokio::sync::watch;
use tokio::time::sleep;
use url::Url;

use crate::compose::adapters::AutomationsClient;

const INTERVAL: Duration = Duration::from_secs(10);
/// While it does not answer: runs that report their end wait for it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Looks whether the automations service answers.
pub(crate) struct AutomationsProbe {
    pub(crate) client: AutomationsClient,
    pub(crate) url: Url,
    pub(crate) status: watch::Sender<AutomationsStatus>,
}

impl AutomationsProbe {
    /// What users read while it does not.
    pub(crate) const AWAY: &str =
        "The automations service does not answer. It runs apart from this service.";

    pub(crate) async fn run(self: Box<Self>) {
        let url = &self.url;
        let mut answered = None;
        loop {
            let answers = self.client.is_ready(url).await;
            if answered != Some(answers) {
                answered = Some(answers);
                let status = if answers {
                    tracing::info!(%url, "the automations service answers");
                    AutomationsStatus::Running(url.clone())
                } else {
                    tracing::warn!(%url, "the automations service does not answer; trying again");
                    AutomationsStatus::Unavailable(Self::AWAY.to_owned())
                };
                self.status.send_replace(status);
            }
            let pause = if answers { INTERVAL } else { RETRY_INTERVAL };
            sleep(pause).await;
        }
    }
}
