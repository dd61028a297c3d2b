//! Deletes sandboxes that runs of automations have left behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use application::sandboxes::EndedRuns;
use application::{App, AppError};
use domain::error::{ErrorClass, chain};
use domain::id::{ApiKeyId, OrganizationId, OwnerId};
use domain::sandbox::Sandbox;
use http_api::AutomationsStatus;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use url::Url;

use super::AutomationsRunner;

/// Each pass makes a key for each user with old sandboxes of runs.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The automations service deletes most sandboxes in this time after the end of their run, and has stored the ids of all that it
/// keeps.
const SETTLING_TIME: Duration = Duration::from_secs(10);

/// The clean-up, while the automations service runs.
pub(crate) struct RunCleanup {
    pub(crate) runner: Arc<AutomationsRunner>,
    /// The runs that report their end.
    pub(crate) ended: mpsc::Receiver<ApiKeyId>,
}

impl RunCleanup {
    /// Cleans up after each start of the process, after runs, and from time to time.
    pub(crate) async fn run(mut self, app: App) {
        let mut status = self.runner.status.subscribe();
        let mut passes = interval(INTERVAL);
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let reported = tokio::select! {
                _ = passes.tick() => None,
                // The runner, which sends the status, lives as long as this.
                _ = status.changed() => None,
                Some(run) = self.ended.recv() => {
                    sleep(SETTLING_TIME).await;
                    let mut runs = HashSet::from([run]);
                    while let Ok(run) = self.ended.try_recv() {
                        runs.insert(run);
                    }
                    Some(runs)
                }
            };
            let url = match &*status.borrow_and_update() {
                AutomationsStatus::Running(url) => url.clone(),
                AutomationsStatus::Unavailable(_) => continue,
            };
            self.clean_up(&app, &url, reported).await;
        }
    }

    /// Looks at the sandboxes of these runs, or at those of all earlier ones.
    async fn clean_up(&self, app: &App, url: &Url, reported: Option<HashSet<ApiKeyId>>) {
        let process_start = *self.runner.locked_process_start();
        let earlier = EndedRuns::Earlier(process_start);
        let ended = reported.map_or(earlier, EndedRuns::Reported);
        match app.sandboxes.of_ended_runs(&ended).await {
            Ok(left) => self.delete(app, url, left).await,
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, "cannot list sandboxes of automations; trying again");
            }
        }
    }

    async fn delete(&self, app: &App, url: &Url, mut left: Vec<Sandbox>) {
        left.sort_by(|a, b| a.owner.cmp(&b.owner));
        for sandboxes in left.chunk_by(|a, b| a.owner == b.owner) {
            let Some(Sandbox { owner, .. }) = sandboxes.first() else {
                continue;
            };
            let needed = match self.needed(app, url, owner).await {
                Ok(needed) => needed,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(%owner, error, "cannot ask which sandboxes automations need; trying again");
                    continue;
                }
            };
            let left = sandboxes
                .iter()
                .filter(|it| !needed.contains(it.id.as_str()));
            for sandbox in left {
                app.sandboxes.delete_after_run(sandbox).await;
            }
        }
    }

    /// The sandboxes that automations of this owner need.
    async fn needed(
        &self,
        app: &App,
        url: &Url,
        owner: &OwnerId,
    ) -> Result<HashSet<String>, AppError> {
        let user = OrganizationId::personal(&owner.user());
        let organization = owner.shared_organization().unwrap_or(user);
        match app.automation_keys.for_run(user, organization).await {
            Ok(key) => Ok(self.runner.client.needed_sandboxes(url, key).await?),
            // Automations of those who may not use the service any more run no more.
            Err(AppError::Refused {
                class: ErrorClass::NotFound,
                ..
            }) => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}
