//! Deletes sandboxes that ended runs of automations have left behind.

use std::collections::HashSet;
use std::time::Duration;

use agent_client::AutomationsClient;
use application::{App, AppError};
use domain::error::{ErrorClass, chain};
use domain::id::{OrganizationId, OwnerId};
use domain::sandbox::Sandbox;
use http_api::AutomationsStatus;
use tokio::sync::watch;
use tokio::time::sleep;
use url::Url;

use super::AutomationsRunner;

const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The clean-up, while the automations service runs.
pub(crate) struct RunCleanup {
    client: AutomationsClient,
    status: watch::Receiver<AutomationsStatus>,
}

impl RunCleanup {
    pub(crate) fn of(runner: &AutomationsRunner) -> Self {
        Self {
            client: runner.client.clone(),
            status: runner.status.subscribe(),
        }
    }

    pub(crate) async fn run(self, app: App) {
        loop {
            sleep(INTERVAL).await;
            let url = match &*self.status.borrow() {
                AutomationsStatus::Running(url) => url.clone(),
                AutomationsStatus::Unavailable(_) => continue,
            };
            match app.sandboxes.of_ended_runs().await {
                Ok(ended) => self.delete(&app, &url, ended).await,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "cannot list sandboxes of automations; trying again");
                }
            }
        }
    }

    async fn delete(&self, app: &App, url: &Url, mut ended: Vec<Sandbox>) {
        ended.sort_by(|a, b| a.owner.cmp(&b.owner));
        for sandboxes in ended.chunk_by(|a, b| a.owner == b.owner) {
            let Some(Sandbox { owner, .. }) = sandboxes.first() else {
                continue;
            };
            let kept = match self.kept(app, url, owner).await {
                Ok(kept) => kept,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(%owner, error, "cannot ask which sandboxes automations keep; trying again");
                    continue;
                }
            };
            let left = sandboxes.iter().filter(|it| !kept.contains(it.id.as_str()));
            for sandbox in left {
                app.sandboxes.delete_after_run(sandbox).await;
            }
        }
    }

    /// The sandboxes that automations of this owner keep, for runs that continue a conversation.
    async fn kept(
        &self,
        app: &App,
        url: &Url,
        owner: &OwnerId,
    ) -> Result<HashSet<String>, AppError> {
        let user = OrganizationId::personal(&owner.user());
        let organization = owner.shared_organization().unwrap_or(user);
        match app.automation_keys.for_run(user, organization).await {
            Ok(key) => Ok(self.client.kept_sandboxes(url, key).await?),
            // Automations of those who may not use the service any more run no more.
            Err(AppError::Refused {
                class: ErrorClass::NotFound,
                ..
            }) => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}
