//! The keeper: makes backend and rows agree, one action per sandbox at a time.
//!
//! Intent is written by requests; only the keeper acts on it, under a lock per sandbox, always from the row as it is
//! *now*. So it does not matter who asks (a request, the start worker, start-up, the periodic relist) or how often, and
//! a crash between any two lines leaves a row that the next pass converges.

mod boot_slots;
mod backend_contact;
mod pause_and_remove;
mod relist;
mod sandbox_lease;
mod retire;
mod bring_up;
mod wake;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub(crate) use boot_slots::{SpareBootSlot, BootSlots};
pub(crate) use backend_contact::is_known;
use domain::agent::AgentEndpoint;
use domain::clock::Timestamp;
use domain::id::SandboxId;
use domain::metrics::Gauge;
use domain::sandbox::{DesiredState, SandboxEndpoints, Sandbox, SandboxFacts, SandboxStatus};
use domain::scope::Scope;
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::Instrument;
use url::Url;

use crate::identity::key_cache::KeyCache;
use crate::ports::{Policy, Ports};
use crate::sync::ConversationSyncer;
use crate::{AppError, BackgroundTasks};

/// How often a line of progress is written down.
const PROGRESS_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Acts on sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct SandboxReconciler(Arc<ReconcilerShared>);

struct ReconcilerShared {
    ports: Ports,
    policy: Policy,
    syncer: ConversationSyncer,
    tasks: BackgroundTasks,
    /// When this keeper's process began.
    started_at: Timestamp,
    /// The store has served this host before.
    owns_host: AtomicBool,
    /// Turns to boot an agent server.
    boots: BootSlots,
    /// Sandboxes of this host that count in the caps, as of the last comparison.
    up: AtomicU32,
    /// All sandboxes of this host by status, as of the last comparison.
    statuses: [Gauge; SandboxStatus::ALL.len()],
    /// Whether the backend can be asked.
    contact: backend_contact::ContactTracker,
    /// One slot per sandbox in use; dead entries are swept when the map is next touched.
    slots: Mutex<HashMap<SandboxId, Weak<SandboxSlot>>>,
    /// Sandboxes that reported a moment ago.
    reporters: KeyCache<Sandbox>,
}

/// What those who want to act on one sandbox share.
struct SandboxSlot {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Counts changes of intent away from running: a start under way gives up.
    changes: watch::Sender<u64>,
    /// What a start under way is waiting for, in a line.
    progress: watch::Sender<Option<String>>,
    /// Whether a change by another process already waits for its turn.
    has_follower: AtomicBool,
}

/// The right to act on one sandbox. Changes of intent are seen from before the row is read.
struct SandboxGuard {
    _guard: OwnedMutexGuard<()>,
    /// Keeps the senders alive.
    slot: Arc<SandboxSlot>,
    changes: watch::Receiver<u64>,
    /// Where others serve the same host.
    lease: Option<sandbox_lease::SandboxLease>,
}

/// Why a turn ends early.
enum GuardEnd {
    /// The owner pauses or deletes the sandbox.
    IntentChanged,
    /// Somebody else may act on the sandbox: nothing more may be done.
    LeaseLost,
}

impl SandboxGuard {
    /// Does something that is idempotent, unless the right to do it is lost meanwhile.
    async fn unless_lease_lost<T>(
        &self,
        work: impl Future<Output = Result<T, AppError>>,
    ) -> Result<T, AppError> {
        let Some(lease) = &self.lease else {
            return work.await;
        };
        tokio::select! {
            done = work => done,
            () = lease.lost() => Err(AppError::TakenOver),
        }
    }

    /// Completes when it must not go on.
    async fn is_over(&mut self) -> GuardEnd {
        let lost = async {
            match &self.lease {
                Some(lease) => lease.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The sender lives as long as the slot, so this is never the error of a closed channel.
            _ = self.changes.changed() => GuardEnd::IntentChanged,
            () = lost => GuardEnd::LeaseLost,
        }
    }
}

/// Follows what a start is waiting for.
pub(crate) struct ProgressFollower {
    /// Keeps the sender alive.
    _slot: Arc<SandboxSlot>,
    lines: watch::Receiver<Option<String>>,
    told: Option<String>,
}

impl ProgressFollower {
    /// The next line that says something new, a second after it was said: a quick preparation says nothing.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            let is_news = |line: &Option<String>| line.is_some() && *line != self.told;
            // The sender lives as long as the slot, so this is never the error of a closed channel.
            let _ = self.lines.wait_for(is_news).await;
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let line = self.lines.borrow_and_update().clone();
            if let Some(line) = line {
                self.told = Some(line.clone());
                return line;
            }
        }
    }
}

impl SandboxReconciler {
    /// A keeper for the sandboxes of this host.
    pub(crate) fn new(ports: Ports, policy: Policy, syncer: ConversationSyncer, tasks: BackgroundTasks) -> Self {
        let started_at = ports.clock.now();
        Self(Arc::new(ReconcilerShared {
            started_at,
            owns_host: AtomicBool::new(false),
            boots: BootSlots::new(policy.parallel_boots),
            up: AtomicU32::new(0),
            statuses: Default::default(),
            contact: backend_contact::ContactTracker::default(),
            ports,
            policy,
            syncer,
            tasks,
            slots: Mutex::default(),
            reporters: KeyCache::default(),
        }))
    }

    /// How many sandboxes of this host start or run, as of the last comparison and what was begun since.
    pub(crate) fn running_count(&self) -> u32 {
        self.0.up.load(Ordering::Relaxed)
    }

    /// One more is begun here.
    pub(crate) fn count_start(&self) {
        self.0.up.fetch_add(1, Ordering::Relaxed);
    }

    /// Sandboxes by their keys, for reports. Whoever changes what a key opens clears this once the store was asked to, also
    /// when that failed: it may have happened.
    pub(crate) fn reporters(&self) -> &KeyCache<Sandbox> {
        &self.0.reporters
    }

    fn slot(&self, id: &SandboxId) -> Arc<SandboxSlot> {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(id).and_then(Weak::upgrade) {
            return slot;
        }
        slots.retain(|_, slot| slot.strong_count() > 0);
        let slot = Arc::new(SandboxSlot {
            lock: Arc::default(),
            changes: watch::Sender::new(0),
            progress: watch::Sender::new(None),
            has_follower: AtomicBool::new(false),
        });
        slots.insert(id.clone(), Arc::downgrade(&slot));
        slot
    }

    async fn turn(&self, id: &SandboxId) -> SandboxGuard {
        let slot = self.slot(id);
        let guard = Arc::clone(&slot.lock).lock_owned().await;
        let changes = slot.changes.subscribe();
        let lease = self.lease(id).await;
        SandboxGuard {
            lease,
            _guard: guard,
            slot,
            changes,
        }
    }

    /// What a start of this sandbox is waiting for, whoever asked for it.
    pub(crate) fn progress(&self, id: &SandboxId) -> ProgressFollower {
        let slot = self.slot(id);
        let lines = slot.progress.subscribe();
        ProgressFollower {
            _slot: slot,
            lines,
            told: None,
        }
    }

    /// Whether nobody is acting on the sandbox right now.
    fn is_idle(&self, id: &SandboxId) -> bool {
        self.slot(id).lock.try_lock().is_ok()
    }

    /// The owner no longer wants it to run (committed): a start that is under way gives up at once.
    pub(crate) fn cancel_start(&self, id: &SandboxId) {
        self.slot(id).changes.send_modify(|changes| *changes += 1);
    }

    async fn row(&self, id: &SandboxId) -> Result<Option<Sandbox>, AppError> {
        let row = self.0.ports.sandboxes.find(&Scope::System, id).await?;
        // Others are acted on by whoever serves their host.
        Ok(row.filter(|row| row.host == self.0.policy.host))
    }

    /// Another process committed something about a sandbox of this host: acts on it.
    pub(crate) async fn follow(&self, id: &SandboxId) -> Result<(), AppError> {
        let Some(row) = self.row(id).await? else {
            return Ok(());
        };
        if self.is_settled(&row) {
            return Ok(());
        }
        if row.desired != DesiredState::Running {
            // A start that is under way here gives up.
            self.cancel_start(id);
        }
        // On Postgres our own changes come back, one for each line of progress. One waits for its turn, for all of them.
        let slot = self.slot(id);
        if slot.has_follower.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut turn = self.turn(id).await;
        // Before the row is read: what changes from here on is followed anew.
        slot.has_follower.store(false, Ordering::SeqCst);
        match self.row(id).await? {
            Some(row) if !self.is_settled(&row) => self.act(row, &mut turn).await,
            _ => Ok(()),
        }
    }

    /// Whether a row needs nothing of this process.
    fn is_settled(&self, row: &Sandbox) -> bool {
        match row.desired {
            // Whoever shares the host acts on what it asked for itself.
            DesiredState::Running => {
                row.status != SandboxStatus::Starting || self.0.policy.is_host_shared
            }
            DesiredState::Paused => {
                matches!(row.status, SandboxStatus::Paused | SandboxStatus::Missing)
            }
            DesiredState::Deleted => false,
        }
    }

    /// Makes the backend do what the row wants.
    pub async fn converge(&self, id: &SandboxId) -> Result<(), AppError> {
        let span = tracing::info_span!("sandbox.converge", sandbox.id = %id);
        async {
            let mut turn = self.turn(id).await;
            let Some(row) = self.row(id).await? else {
                return Ok(());
            };
            self.act(row, &mut turn).await
        }
        .instrument(span)
        .await
    }

    async fn act(&self, row: Sandbox, turn: &mut SandboxGuard) -> Result<(), AppError> {
        match row.desired {
            DesiredState::Running if row.status.is_up() => self.bring_up(row, turn).await.map(drop),
            // It failed meanwhile, and waits for its owner.
            DesiredState::Running => Ok(()),
            DesiredState::Paused => turn.unless_lease_lost(self.pause_sandbox(&row)).await,
            DesiredState::Deleted => turn.unless_lease_lost(self.clear(&row)).await,
        }
    }

    /// The running sandbox with its agent server answering; starts it when it does not run, within the caps. For the
    /// start worker.
    pub async fn ensure_running(&self, id: &SandboxId) -> Result<(Sandbox, SandboxEndpoints), AppError> {
        let mut turn = self.turn(id).await;
        let mut row = self.row(id).await?.ok_or_else(start_cancelled)?;
        if row.desired == DesiredState::Running && !row.status.is_up() {
            // It failed since the start was asked for, and counts in no cap.
            let (ports, caps) = (&self.0.ports, &self.0.policy.caps.get());
            let now = ports.clock.now();
            let again =
                ports
                    .sandboxes
                    .set_desired(&Scope::System, id, DesiredState::Running, caps, now);
            row = again.await?.ok_or_else(start_cancelled)?;
        }
        if row.desired != DesiredState::Running {
            return Err(start_cancelled());
        }
        self.bring_up(row, &mut turn).await
    }

    /// How to talk to a sandbox's agent server.
    pub fn endpoint(&self, sandbox: &Sandbox, url: &Url) -> Result<AgentEndpoint, AppError> {
        endpoint(&self.0.ports, sandbox, url)
    }

    /// Writes facts pause_and_remove; `false` if the intent changed meanwhile (then the next turn follows it).
    async fn record(
        &self,
        row: &Sandbox,
        expected: DesiredState,
        facts: &SandboxFacts,
    ) -> Result<bool, AppError> {
        let now = self.0.ports.clock.now();
        let sandboxes = &self.0.ports.sandboxes;
        let recorded = sandboxes.record_facts(&row.id, expected, facts, now).await;
        self.reporters().clear();
        Ok(recorded?)
    }
}

fn start_cancelled() -> AppError {
    AppError::conflict("The sandbox was paused or deleted while it was starting")
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
        sandbox: sandbox.id.clone(),
        url: url.clone(),
        key,
    })
}
