//! The warm pool: sandboxes that are booted dormant, and claims on them.
//!
//! A start that needs a new sandbox claims a warm one of its spec, and stores its own sandbox under the same id and
//! keys. From there on it is like any sandbox: the reconciler finds its agent server answering and wakes it. Without a
//! warm sandbox the start is a cold one. The pool never delays a start: it only boots while no start waits for a boot
//! slot, and aborts its boots when one does.
//!
//! Rows alone decide the outcome of a claim. A claim with an unknown outcome (the process died, the request was
//! dropped, the store did not answer) is left alone for a minute. After that either a sandbox has it, or it is
//! removed.

mod boot;
mod claim;
mod demand;
mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use claim::WarmClaim;
use domain::agent::AgentLifecycle;
use domain::clock::Clock;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    SandboxBackend, SandboxLifecycle, SandboxRepository, SandboxSpecCatalog, WarmRepository,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::demand::WarmDemand;
use crate::BackgroundTasks;
use crate::policy::Policy;
use crate::ports::Ports;
use crate::sandboxes::reconcile::SandboxReconciler;
use crate::sandboxes::sandbox_factory::SandboxFactory;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WarmCounts {
    /// Target size; 0 where the pool is off.
    pub target: u32,
    /// READY warm sandboxes of this host, as of the last pass.
    pub ready: u32,
    pub booting: u32,
    /// Claimed sandboxes whose start is being stored.
    pub claimed: u32,
    pub refused_recipes: u64,
    /// Starts that claimed a warm sandbox.
    pub hits: u64,
    /// Starts of the same spec without a warm sandbox.
    pub misses: u64,
    pub failed_boots: u64,
    /// Boots that were aborted because a start waited for a slot.
    pub gave_way: u64,
    /// Warm sandboxes that were removed unused: outdated, unhealthy or surplus.
    pub ended: u64,
}

/// The pool of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WarmSandboxPool(Arc<WarmShared>);

struct WarmShared {
    warm: Arc<dyn WarmRepository>,
    sandboxes: Arc<dyn SandboxRepository>,
    specs: Arc<dyn SandboxSpecCatalog>,
    backend: Arc<dyn SandboxBackend>,
    lifecycle: Arc<dyn SandboxLifecycle>,
    agents: Arc<dyn AgentLifecycle>,
    clock: Arc<dyn Clock>,
    factory: SandboxFactory,
    policy: Policy,
    reconciler: SandboxReconciler,
    tasks: BackgroundTasks,
    state: Mutex<PoolState>,
    wake: Notify,
}

#[derive(Default)]
struct PoolState {
    /// The spec of the pool, and the recipe of a cold start of it now.
    current: Option<(SpecId, String)>,
    has_loaded_recipe: bool,
    /// A recipe that cannot boot dormant.
    refused: Option<String>,
    booting: BTreeSet<SandboxId>,
    ready: BTreeSet<SandboxId>,
    unanswered: BTreeMap<SandboxId, u32>,
    checked_at: Option<Instant>,
    demand: WarmDemand,
    failures: u32,
    next_boot_at: Option<Instant>,
    counts: WarmCounts,
}

impl WarmSandboxPool {
    pub(crate) fn new(
        ports: &Ports,
        policy: Policy,
        factory: SandboxFactory,
        reconciler: SandboxReconciler,
        tasks: BackgroundTasks,
    ) -> Self {
        Self(Arc::new(WarmShared {
            warm: Arc::clone(&ports.warm),
            sandboxes: Arc::clone(&ports.sandboxes),
            specs: Arc::clone(&ports.specs),
            backend: Arc::clone(&ports.backend),
            lifecycle: Arc::clone(&ports.sandbox_lifecycle),
            agents: Arc::clone(&ports.agent_lifecycle),
            clock: Arc::clone(&ports.clock),
            factory,
            policy,
            reconciler,
            tasks,
            state: Mutex::default(),
            wake: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the configuration says that there are warm sandboxes.
    fn is_configured(&self) -> bool {
        self.0.policy.warm.target_count > 0
    }

    fn is_on(&self) -> bool {
        self.is_configured() && !self.0.factory.hosts.is_draining()
    }

    pub(crate) fn counts(&self) -> WarmCounts {
        self.state().counts
    }

    fn target(&self) -> u32 {
        let (policy, now) = (&self.0.policy, Instant::now());
        let room = policy
            .caps
            .get()
            .overall
            .saturating_sub(self.0.reconciler.running_count());
        let mut state = self.state();
        let target = state.demand.target(policy.warm.target_count, room, now);
        state.counts.target = target;
        target
    }
}
