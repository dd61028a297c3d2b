//! Claims of warm sandboxes by starts.

use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{Sandbox, WarmSandbox};
use domain::user::scope::Scope;
use tokio::time::Instant;

use super::WarmSandboxPool;
use crate::AppError;
use crate::sandboxes::SandboxKeys;

const DORMANT_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a look-up for a warm sandbox, which is claimed. If it is dropped before
/// [`WarmClaim::complete_or_abandon`], the sandbox stays claimed until the pool finds out its state.
pub(crate) struct WarmClaim {
    warm: WarmSandboxPool,
    /// `None`: no warm sandbox was available.
    it: Option<WarmSandbox>,
}

impl WarmSandboxPool {
    /// Claims a warm sandbox of this spec. Returns `None` if the pool keeps none of it, at no cost. Else it costs one
    /// query, and one request to the sandbox that was found.
    pub(crate) async fn claim(&self, spec: &SpecId) -> Option<WarmClaim> {
        if !self.is_on() {
            return None;
        }
        let is_first = !self.state().has_loaded_recipe;
        // Before the pool's first pass: warm sandboxes of an earlier process may exist already.
        if is_first && let Err(error) = self.load_recipe().await {
            tracing::debug!(error = %chain(&error), "cannot load the recipe of warm sandboxes");
        }
        let current = self.state().current.clone();
        let (_, recipe) = current.filter(|(kept, _)| kept == spec)?;
        let policy = &self.0.policy;
        let now = self.0.clock.now();
        let found = self.0.warm.claim(&policy.host, spec, &recipe, now).await;
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "cannot claim a warm sandbox; starting a cold one");
            None
        });
        let it = match found {
            Some(it) => self.confirm_dormant(it).await,
            None => None,
        };
        Some(WarmClaim {
            warm: self.clone(),
            it,
        })
    }

    /// Returns the sandbox if it confirms that it is dormant. Its row is not enough: after a restore of the store (a
    /// standby, a backup) the sandbox may belong to a user.
    async fn confirm_dormant(&self, it: WarmSandbox) -> Option<WarmSandbox> {
        self.state().ready.remove(&it.id);
        let at = it.endpoints.as_ref()?;
        let asked = self.0.agents.is_dormant(&it.id, &at.agent_url);
        let is_awake = match tokio::time::timeout(DORMANT_CHECK_TIMEOUT, asked).await {
            Ok(Ok(true)) => return Some(it),
            Ok(Ok(false)) => true,
            unanswered => {
                let error = unanswered.ok().and_then(Result::err);
                let cause = error.map_or_else(|| "it is late".to_owned(), |error| chain(&error));
                tracing::warn!(sandbox.id = %it.id, cause, "a warm sandbox does not answer; starting a cold one");
                false
            }
        };
        let warm = self.clone();
        self.0.tasks.spawn(async move {
            let done = if is_awake {
                tracing::warn!(sandbox.id = %it.id, "an unclaimed warm sandbox is awake (was the store restored from a backup?); removing it");
                warm.abandon_claim(&it.id).await
            } else {
                // The machine may be busy; the pool finds out.
                warm.0.warm.release(&it.id, warm.0.clock.now()).await.map(drop).map_err(Into::into)
            };
            if let Err(error) = done {
                tracing::debug!(sandbox.id = %it.id, error = %chain(&error), "cannot abandon a claim of a warm sandbox; the pool tries again");
            }
            warm.0.wake.notify_one();
        });
        None
    }

    /// Removes a claimed sandbox that no start has stored.
    pub(super) async fn abandon_claim(&self, id: &SandboxId) -> Result<(), AppError> {
        let row = self.0.sandboxes.find(&Scope::System, id).await?;
        if row.is_none() {
            self.0.lifecycle.remove(id).await?;
        }
        self.0.warm.remove(id).await?;
        Ok(())
    }
}

impl WarmClaim {
    /// The sandbox row that the start stores.
    pub(crate) fn sandbox(&self, owner: &OwnerId) -> Option<Sandbox> {
        let it = self.it.clone()?;
        let keys = SandboxKeys {
            id: it.id,
            key_hash: it.key_hash,
            session_key: it.session_key,
            secret_key: it.secret_key,
        };
        Some(self.warm.0.factory.row(keys, owner, it.spec_id))
    }

    /// Completes the claim after the start's transaction if it has stored the sandbox (warm or cold), else abandons it.
    /// An unclear outcome is left to the pool.
    pub(crate) fn complete_or_abandon<T>(
        self,
        outcome: &Result<T, StoreError>,
        is_stored: impl Fn(&T) -> bool,
    ) {
        let is_stored = match outcome {
            Ok(stored) => is_stored(stored),
            Err(StoreError::Unavailable { .. }) => return,
            Err(_) => false,
        };
        let Self { warm, it } = self;
        if is_stored {
            warm.count_claim(it.is_some());
        }
        let Some(WarmSandbox { id, .. }) = it else {
            return warm.0.wake.notify_one();
        };
        let tasks = warm.0.tasks.clone();
        // In the background, so that the start does not wait.
        tasks.spawn(async move {
            let result = if is_stored {
                warm.0.warm.remove(&id).await
            } else {
                warm.0.warm.release(&id, warm.0.clock.now()).await
            };
            if let Err(error) = result {
                tracing::debug!(sandbox.id = %id, error = %chain(&error), "cannot complete or abandon a claim of a warm sandbox; the pool tries again");
            }
            warm.0.wake.notify_one();
        });
    }
}

impl WarmSandboxPool {
    /// Counts a start. Refused and repeated requests do not count.
    fn count_claim(&self, was_warm: bool) {
        self.0.reconciler.count_start();
        let mut state = self.state();
        state.demand.record_arrival(Instant::now());
        let counts = &mut state.counts;
        *if was_warm {
            &mut counts.hits
        } else {
            &mut counts.misses
        } += 1;
    }
}
