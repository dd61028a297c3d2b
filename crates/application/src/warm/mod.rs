//! Warm sandboxes: a pool that is booted dormant, and claims on it.
//!
//! A start that needs a new sandbox claims a warm one of its template, and stores its own sandbox under that one's id with its
//! keys. Everything after that is as with any other sandbox: the keeper brings it up, finds its agent server answering, and
//! wakes it. Where there is none, the start is a cold one. The pool never keeps a start waiting: it boots only while nobody
//! waits for a turn to boot, and gives up what it boots when somebody does.
//!
//! What a claim becomes is decided by rows alone. A claim whose outcome is not known (the process died, the request was
//! dropped, the store did not answer) is left as it is: after a minute it is either a sandbox's, or nobody's.

mod boot;
mod claim;
mod pool;
mod demand;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use claim::WarmClaim;
use domain::id::{SandboxId, SpecId};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::demand::WarmDemand;
use crate::BackgroundTasks;
use crate::ports::{Policy, Ports};
use crate::sandboxes::SandboxReconciler;

/// How many warm sandboxes are kept, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmPolicy {
    /// So many of the default template; while more are asked for during one boot, up to twice as many. 0: none.
    pub keep: u32,
    /// One that is older than this is replaced.
    pub max_age: Duration,
    /// How often all are looked at when nothing happens.
    pub interval: Duration,
    /// A claim that has not become a sandbox's by then never will.
    pub claim_grace: Duration,
}

impl Default for WarmPolicy {
    /// None; six hours, every ten seconds, one minute.
    fn default() -> Self {
        Self {
            keep: 0,
            max_age: Duration::from_secs(6 * 60 * 60),
            interval: Duration::from_secs(10),
            claim_grace: Duration::from_secs(60),
        }
    }
}

/// What the pool of this process knows and has done since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WarmCounts {
    /// How many there should be now; 0 where the pool is off.
    pub target: u32,
    /// READY ones of this host, as of the last look.
    pub ready: u32,
    /// Being booted.
    pub booting: u32,
    /// Promised to starts that are being stored.
    pub claimed: u32,
    /// Recipes that were found unable to boot dormant.
    pub refused_recipes: u64,
    /// Starts that got a warm sandbox.
    pub hits: u64,
    /// Starts of the same template that found none.
    pub misses: u64,
    /// Boots that failed.
    pub failed_boots: u64,
    /// Boots that were given up because somebody waited for their turn.
    pub gave_way: u64,
    /// Ones that were ended unused: stale, unhealthy or too many.
    pub ended: u64,
}

/// The pool of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WarmSandboxPool(Arc<WarmShared>);

struct WarmShared {
    ports: Ports,
    policy: Policy,
    keeper: SandboxReconciler,
    tasks: BackgroundTasks,
    state: Mutex<PoolState>,
    /// Wakes the pool.
    wake: Notify,
}

struct PoolState {
    /// The template that is kept warm, and what a cold start of it would be made of now.
    current: Option<(SpecId, String)>,
    /// Whether that was looked up ever.
    has_loaded_recipe: bool,
    /// A recipe that cannot boot dormant.
    refused: Option<String>,
    /// What this process boots.
    booting: BTreeSet<SandboxId>,
    /// READY ones.
    ready: BTreeSet<SandboxId>,
    /// How often in a row each did not answer.
    silent: BTreeMap<SandboxId, u32>,
    /// When the READY ones were last asked.
    asked_at: Option<Instant>,
    demand: WarmDemand,
    /// Boots that failed, in a row.
    failures: u32,
    not_before: Option<Instant>,
    counts: WarmCounts,
}

impl WarmSandboxPool {
    pub(crate) fn new(ports: Ports, policy: Policy, keeper: SandboxReconciler, tasks: BackgroundTasks) -> Self {
        Self(Arc::new(WarmShared {
            ports,
            policy,
            keeper,
            tasks,
            state: Mutex::new(PoolState {
                current: None,
                has_loaded_recipe: false,
                refused: None,
                booting: BTreeSet::new(),
                ready: BTreeSet::new(),
                silent: BTreeMap::new(),
                asked_at: None,
                demand: WarmDemand::new(Instant::now()),
                failures: 0,
                not_before: None,
                counts: WarmCounts::default(),
            }),
            wake: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_on(&self) -> bool {
        self.0.policy.warm.keep > 0
    }

    /// What it knows and has done.
    pub(crate) fn counts(&self) -> WarmCounts {
        self.state().counts
    }

    /// How many there should be now.
    fn target(&self) -> u32 {
        let (policy, now) = (&self.0.policy, Instant::now());
        let room = policy.caps.get().overall.saturating_sub(self.0.keeper.running_count());
        let mut state = self.state();
        let target = state.demand.target(policy.warm.keep, room, now);
        state.counts.target = target;
        target
    }
}
