//! Claims: a warm sandbox for somebody who needs a new one.

use domain::error::StoreError;
use domain::id::{SpecId, UserId};
use domain::sandbox::{Desired, Sandbox, SandboxStatus, WarmSandbox};
use tokio::time::Instant;

use super::Warm;

/// What came of looking for a warm one.
pub(crate) enum Claimed {
    /// None of this template are kept.
    Off,
    /// There is none now.
    None,
    /// This one.
    One(Box<Claim>),
}

/// A warm sandbox that is promised. Dropped without a word it stays promised, until the pool finds out what became of it.
pub(crate) struct Claim {
    warm: Warm,
    it: WarmSandbox,
}

impl Warm {
    /// Takes one of this template. Where none are kept this costs nothing, else one query.
    pub(crate) async fn claim(&self, spec: &SpecId) -> Claimed {
        if !self.is_on() {
            return Claimed::Off;
        }
        let is_first = !self.state().has_looked;
        // Before the pool's first look: what an earlier life kept is there already.
        if is_first && let Err(error) = self.look_up_recipe().await {
            tracing::debug!(%error, "it cannot be told what a warm sandbox must be made of");
        }
        let recipe = {
            let mut state = self.state();
            let Some((_, recipe)) = state.current.clone().filter(|(kept, _)| kept == spec) else {
                return Claimed::Off;
            };
            state.demand.arrives(Instant::now());
            recipe
        };
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let now = ports.clock.now();
        let found = ports.warm.claim(&policy.host, spec, &recipe, now).await;
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot claim a warm sandbox; starting a cold one");
            None
        });
        {
            let mut state = self.state();
            match &found {
                Some(it) => {
                    state.counts.hits += 1;
                    state.ready.remove(&it.id);
                }
                None => state.counts.misses += 1,
            }
        }
        self.0.keeper.begins();
        self.0.bell.notify_one();
        match found {
            Some(it) => Claimed::One(Box::new(Claim {
                warm: self.clone(),
                it,
            })),
            None => Claimed::None,
        }
    }
}

impl Claim {
    /// The sandbox that it becomes, to be stored.
    pub(crate) fn sandbox(&self, owner: &UserId) -> Sandbox {
        let (it, now) = (&self.it, self.warm.0.ports.clock.now());
        Sandbox {
            id: it.id.clone(),
            owner: owner.clone(),
            spec_id: it.spec_id.clone(),
            host: it.host.clone(),
            desired: Desired::Running,
            status: SandboxStatus::Starting,
            status_detail: None,
            key_hash: it.key_hash.clone(),
            session_key: it.session_key.clone(),
            secret_key: it.secret_key.clone(),
            agent_url: None,
            exposed_urls: Vec::new(),
            workspace: None,
            created_at: now,
            updated_at: now,
            paused_at: None,
        }
    }

    /// Its sandbox was stored (`true`), or it was not needed. What the store said nothing clear about is left to the pool.
    pub(crate) fn settle<T>(self, done: &Result<T, StoreError>, is_stored: impl Fn(&T) -> bool) {
        let is_stored = match done {
            Ok(answer) => is_stored(answer),
            Err(StoreError::Unavailable { .. }) => return,
            Err(_) => false,
        };
        let (warm, id) = (self.warm, self.it.id);
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
                tracing::debug!(sandbox.id = %id, %error, "claim not settled; the pool will");
            }
            warm.0.bell.notify_one();
        });
    }
}
