//! Claims: a warm sandbox for somebody who needs a new one.

use std::sync::Arc;
use std::time::Duration;

use domain::error::{StoreError, chain};
use domain::id::{SandboxId, SpecId, UserId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus, WarmSandbox};
use domain::scope::Scope;
use tokio::time::Instant;

use super::WarmSandboxPool;
use crate::AppError;

/// How long one is asked whether it is dormant before it is promised.
const DORMANT_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// What came of looking for a warm one, which is promised. Dropped without a word it stays promised, until the pool finds out
/// what became of it.
pub(crate) struct WarmClaim {
    warm: WarmSandboxPool,
    /// `None`: there is none now.
    it: Option<WarmSandbox>,
}

impl WarmSandboxPool {
    /// Takes one of this template; `None` where none of it are kept, which costs nothing. Else it costs one query, and one
    /// question to the one that was found.
    pub(crate) async fn claim(&self, spec: &SpecId) -> Option<WarmClaim> {
        if !self.is_on() {
            return None;
        }
        let is_first = !self.state().has_loaded_recipe;
        // Before the pool's first look: what an earlier life kept is there already.
        if is_first && let Err(error) = self.load_recipe().await {
            tracing::debug!(error = %chain(&error), "it cannot be told what a warm sandbox must be made of");
        }
        let current = self.state().current.clone();
        let (_, recipe) = current.filter(|(kept, _)| kept == spec)?;
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        let found = ports.warm.claim(&policy.host, spec, &recipe, now).await;
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

    /// It, if it says that it is dormant. The row alone does not do: where a store has gone back in time (a standby that
    /// took over, a backup) it may be of one that is a user's since.
    async fn confirm_dormant(&self, it: WarmSandbox) -> Option<WarmSandbox> {
        self.state().ready.remove(&it.id);
        let at = it.endpoints.as_ref()?;
        let asked = self.0.ports.agents.is_dormant(&it.id, &at.agent_url);
        let is_awake = match tokio::time::timeout(DORMANT_CHECK_TIMEOUT, asked).await {
            Ok(Ok(true)) => return Some(it),
            Ok(Ok(false)) => true,
            Ok(Err(_)) | Err(_) => false,
        };
        let warm = self.clone();
        self.0.tasks.spawn(async move {
            let done = if is_awake {
                tracing::warn!(sandbox.id = %it.id, "a warm sandbox is awake, and is given to nobody");
                warm.abandon_claim(&it.id).await
            } else {
                // The machine may be busy: the pool finds out.
                warm.0.ports.warm.release(&it.id, warm.0.ports.clock.now()).await.map(drop).map_err(Into::into)
            };
            if let Err(error) = done {
                tracing::debug!(sandbox.id = %it.id, error = %chain(&error), "claim not given up; the pool will");
            }
            warm.0.wake.notify_one();
        });
        None
    }

    /// Ends one that is promised and has not become a sandbox's.
    pub(super) async fn abandon_claim(&self, id: &SandboxId) -> Result<(), AppError> {
        let ports = &self.0.ports;
        let row = ports.sandboxes.find(&Scope::System, id).await?;
        if row.is_none() {
            ports.backend.remove(id).await?;
        }
        ports.warm.remove(id).await?;
        Ok(())
    }
}

impl WarmClaim {
    /// The sandbox that it becomes, to be stored.
    pub(crate) fn sandbox(&self, owner: &UserId) -> Option<Sandbox> {
        let (it, now) = (self.it.as_ref()?, self.warm.0.ports.clock.now());
        Some(Sandbox {
            id: it.id.clone(),
            owner: owner.clone(),
            spec_id: it.spec_id.clone(),
            host: it.host.clone(),
            desired: DesiredState::Running,
            status: SandboxStatus::Starting,
            status_detail: None,
            key_hash: it.key_hash,
            session_key: it.session_key.clone(),
            secret_key: it.secret_key.clone(),
            agent_url: None,
            exposed_urls: Arc::default(),
            workspace: None,
            created_at: now,
            updated_at: now,
            paused_at: None,
        })
    }

    /// The sandbox (this one, or where there was none a cold one) was stored (`true`), or it was not needed. What the store
    /// said nothing clear about is left to the pool.
    pub(crate) fn settle<T>(self, done: &Result<T, StoreError>, is_stored: impl Fn(&T) -> bool) {
        let is_stored = match done {
            Ok(answer) => is_stored(answer),
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
        // Nobody has to wait for that.
        tasks.spawn(async move {
            let ports = &warm.0.ports;
            let settled = if is_stored {
                ports.warm.remove(&id).await
            } else {
                ports.warm.release(&id, ports.clock.now()).await
            };
            if let Err(error) = settled {
                tracing::debug!(sandbox.id = %id, error = %chain(&error), "claim not settled; the pool will");
            }
            warm.0.wake.notify_one();
        });
    }
}

impl WarmSandboxPool {
    /// One more is begun here. Requests that were refused or repeated ask for nothing.
    fn count_claim(&self, was_warm: bool) {
        self.0.keeper.count_start();
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
