//! The keeper: makes backend and rows agree, one action per sandbox at a time.
//!
//! Intent is written by requests; only the keeper acts on it, under a lock per sandbox, always from the row as it is
//! *now*. So it does not matter who asks (a request, the start worker, start-up, the periodic relist) or how often, and
//! a crash between any two lines leaves a row that the next pass converges.

mod down;
mod facts;
mod up;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::agent::AgentEndpoint;
use domain::clock::Timestamp;
use domain::id::SandboxId;
use domain::sandbox::{Desired, Located, Sandbox, SandboxFacts};
use domain::scope::Scope;
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;
use url::Url;

use crate::AppError;
use crate::ports::{Policy, Ports};
use crate::sync::Syncer;

/// Acts on sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct Keeper(Arc<Shared>);

struct Shared {
    ports: Ports,
    policy: Policy,
    syncer: Syncer,
    /// When this keeper's process began.
    born: Timestamp,
    /// One lock per sandbox in use; dead entries are swept when the map is next touched.
    locks: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Keeper {
    /// A keeper for the sandboxes of this host.
    pub(crate) fn new(ports: Ports, policy: Policy, syncer: Syncer) -> Self {
        let born = ports.clock.now();
        Self(Arc::new(Shared {
            born,
            ports,
            policy,
            syncer,
            locks: Mutex::default(),
        }))
    }

    fn lock_of(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }

    async fn lock(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        self.lock_of(id).lock_owned().await
    }

    async fn row(&self, id: &SandboxId) -> Result<Option<Sandbox>, AppError> {
        Ok(self.0.ports.sandboxes.find(&Scope::System, id).await?)
    }

    /// Makes the backend do what the row wants.
    pub async fn converge(&self, id: &SandboxId) -> Result<(), AppError> {
        let span = tracing::info_span!("sandbox.converge", sandbox.id = %id);
        async {
            let _turn = self.lock(id).await;
            let Some(row) = self.row(id).await? else {
                return Ok(());
            };
            match row.desired {
                Desired::Running => self.bring_up(&row).await.map(drop),
                Desired::Paused => self.put_down(&row).await,
                Desired::Deleted => self.clear(&row).await,
            }
        }
        .instrument(span)
        .await
    }

    /// The running sandbox with its agent server answering; starts it when it does not run. For the start worker.
    pub async fn ensure_running(&self, id: &SandboxId) -> Result<(Sandbox, Located), AppError> {
        let _turn = self.lock(id).await;
        let row = self
            .row(id)
            .await?
            .filter(|row| row.desired == Desired::Running);
        let row = row.ok_or_else(|| {
            AppError::conflict("The sandbox was paused or deleted while it was starting")
        })?;
        let located = self.bring_up(&row).await?;
        Ok((row, located))
    }

    /// How to talk to a sandbox's agent server.
    pub fn endpoint(&self, sandbox: &Sandbox, url: &Url) -> Result<AgentEndpoint, AppError> {
        endpoint(&self.0.ports, sandbox, url)
    }

    async fn record(
        &self,
        row: &Sandbox,
        expected: Desired,
        facts: &SandboxFacts,
    ) -> Result<(), AppError> {
        let now = self.0.ports.clock.now();
        if !self
            .0
            .ports
            .sandboxes
            .record(&row.id, expected, facts, now)
            .await?
        {
            tracing::debug!(sandbox.id = %row.id, "intent changed meanwhile; the next turn follows it");
        }
        Ok(())
    }
}

/// How to talk to the agent server at `url` of this sandbox.
pub(crate) fn endpoint(
    ports: &Ports,
    sandbox: &Sandbox,
    url: &Url,
) -> Result<AgentEndpoint, AppError> {
    let key = ports
        .cipher
        .open(&Sandbox::key_context(&sandbox.id), &sandbox.session_key)?;
    Ok(AgentEndpoint {
        url: url.clone(),
        key,
    })
}
