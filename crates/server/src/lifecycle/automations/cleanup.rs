//! Deletes sandboxes that runs of automations have left behind.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use application::sandboxes::EndedRuns;
use application::{App, AppError};
use domain::clock::Timestamp;
use domain::error::{ErrorClass, chain};
use domain::id::{ApiKeyId, OrganizationId, OwnerId};
use domain::sandbox::Sandbox;
use http_api::AutomationsStatus;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use url::Url;

use crate::compose::adapters::AutomationsClient;

/// Each pass makes a key for each user with old sandboxes of runs.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The automations service deletes most sandboxes in this time after the end of their run, and has stored the ids of all that it
/// keeps.
const SETTLING_TIME: Duration = Duration::from_secs(10);

/// When the process of the automations service started; unknown if an earlier process of this service has started it, or
/// another one.
#[derive(Debug, Default)]
pub(crate) struct ProcessStart(Mutex<Option<Timestamp>>);

impl ProcessStart {
    pub(super) fn set(&self, start: Option<Timestamp>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = start;
    }

    fn get(&self) -> Option<Timestamp> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clean-up, while the automations service runs.
pub(crate) struct RunCleanup {
    pub(crate) client: AutomationsClient,
    pub(crate) status: watch::Receiver<AutomationsStatus>,
    pub(crate) process_start: Arc<ProcessStart>,
    /// The runs that report their end.
    pub(crate) ended: mpsc::Receiver<ApiKeyId>,
}

impl RunCleanup {
    /// Cleans up after each start of the process, after runs, and from time to time.
    pub(crate) async fn run(mut self, app: App) {
        let mut status = self.status.clone();
        let mut passes = interval(INTERVAL);
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let reported = next_pass(&mut self.ended, &mut status, &mut passes).await;
            let url = match &*status.borrow() {
                AutomationsStatus::Running(url) => url.clone(),
                AutomationsStatus::Unavailable(_) => continue,
            };
            self.clean_up(&app, &url, reported).await;
        }
    }

    /// Looks at the sandboxes of these runs, or at those of all earlier ones.
    async fn clean_up(&self, app: &App, url: &Url, reported: Option<HashSet<ApiKeyId>>) {
        let earlier = EndedRuns::Earlier(self.process_start.get());
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
            Ok(key) => Ok(self.client.needed_sandboxes(url, key).await?),
            // Automations of those who may not use the service any more run no more.
            Err(AppError::Refused {
                class: ErrorClass::NotFound,
                ..
            }) => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}

/// Waits for the next pass. Returns the runs that have reported their end some time ago; `None`: all earlier ones. A start of the
/// process while runs settle is the next pass, so nothing but this marks the status as seen.
async fn next_pass(
    ended: &mut mpsc::Receiver<ApiKeyId>,
    status: &mut watch::Receiver<AutomationsStatus>,
    passes: &mut Interval,
) -> Option<HashSet<ApiKeyId>> {
    let run = tokio::select! {
        _ = passes.tick() => return None,
        // The runner, which sends the status, lives as long as this.
        _ = status.changed() => return None,
        Some(run) = ended.recv() => run,
    };
    sleep(SETTLING_TIME).await;
    let mut runs = HashSet::from([run]);
    while let Ok(run) = ended.try_recv() {
        runs.insert(run);
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_while_runs_settle_is_a_pass_of_its_own() {
        let (report, mut ended) = mpsc::channel(1);
        let stopped = AutomationsStatus::Unavailable(String::new());
        let (change, mut status) = watch::channel(stopped);
        let mut passes = interval(INTERVAL);
        passes.tick().await;
        let run = ApiKeyId::new(uuid::Uuid::nil());
        report.send(run).await.unwrap();
        {
            let mut settling = std::pin::pin!(next_pass(&mut ended, &mut status, &mut passes));
            assert!(poll!(&mut settling).is_pending());
            let url = "http://127.0.0.1:1".parse().unwrap();
            change.send_replace(AutomationsStatus::Running(url));
            assert_eq!(settling.await, Some(HashSet::from([run])));
        }
        let next = next_pass(&mut ended, &mut status, &mut passes);
        assert_eq!(next.now_or_never(), Some(None));
    }
}
