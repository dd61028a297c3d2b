//! The sandbox reconciler: makes backend and rows agree, with one action per sandbox at a time.
//!
//! Requests write intent; only the reconciler acts on it, under a lock per sandbox, always from the current row. So it
//! does not matter who triggers it (a request, the start worker, start-up, the periodic relist) or how often. A crash
//! between any two lines leaves a row that the next pass converges.

mod backend_contact;
mod boot_slots;
mod bring_up;
mod ended_runs;
mod loops;
mod pause_and_remove;
mod relist;
mod retire;
mod sandbox_lease;
mod wake;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub(crate) use backend_contact::is_state_current;
pub(crate) use boot_slots::{BootSlots, SpareBootSlot};
use domain::agent::{AgentEndpoint, AgentLifecycle, AgentRuntime};
use domain::clock::{Clock, Timestamp};
use domain::conversation::ConversationReportRepository;
use domain::coordination::host::HostRepository;
use domain::coordination::lease::LeaseRepository;
use domain::encryption::cipher::Cipher;
use domain::error::chain;
use domain::id::{IdGenerator, SandboxId};
use domain::metrics::Gauge;
use domain::sandbox::{
    DesiredState, HostSandboxRepository, PrepareProgress, Sandbox, SandboxBackend,
    SandboxEndpoints, SandboxFacts, SandboxKeyRepository, SandboxLifecycle, SandboxRepository,
    SandboxSpecCatalog, SandboxStatus, WarmRepository,
};
use domain::user::scope::Scope;
pub use ended_runs::EndedRuns;
use sandbox_lease::wait_until_lost;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tracing::Instrument;
use url::Url;

use crate::identity::key_cache::KeyCache;
use crate::policy::Policy;
use crate::ports::Ports;
use crate::sync::ConversationSyncer;
use crate::{AppError, BackgroundTasks};

/// Shortest interval of progress updates in the row.
const PROGRESS_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Acts on sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct SandboxReconciler(Arc<ReconcilerShared>);

struct ReconcilerShared {
    sandboxes: Arc<dyn SandboxRepository>,
    host_sandboxes: Arc<dyn HostSandboxRepository>,
    sandbox_keys: Arc<dyn SandboxKeyRepository>,
    warm: Arc<dyn WarmRepository>,
    conversations: Arc<dyn ConversationReportRepository>,
    hosts: Arc<dyn HostRepository>,
    leases: Arc<dyn LeaseRepository>,
    specs: Arc<dyn SandboxSpecCatalog>,
    backend: Arc<dyn SandboxBackend>,
    lifecycle: Arc<dyn SandboxLifecycle>,
    agents: Arc<dyn AgentRuntime>,
    agent_lifecycle: Arc<dyn AgentLifecycle>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    policy: Policy,
    syncer: ConversationSyncer,
    tasks: BackgroundTasks,
    /// Wakes the relist.
    relist_requested: Notify,
    started_at: Timestamp,
    /// Whether the store has served this host before.
    owns_host: AtomicBool,
    boots: BootSlots,
    /// Sandboxes of this host that count towards the caps, as of the last relist.
    up: AtomicU32,
    /// Sandboxes of this host by status, as of the last relist.
    statuses: [Gauge; SandboxStatus::ALL.len()],
    contact: backend_contact::ContactTracker,
    /// One slot per sandbox in use. Unused entries are removed when the map is next touched.
    slots: Mutex<HashMap<SandboxId, Weak<SandboxSlot>>>,
    /// Sandboxes by session key. Any code that changes what a key gives access to clears it after the store call, even
    /// if that failed: the change may have been committed.
    reporters: KeyCache<Sandbox>,
}

struct SandboxSlot {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Counts changes of intent away from running, which cancel a running start.
    changes: watch::Sender<u64>,
    /// Progress of a running start, in one line.
    progress: watch::Sender<Option<String>>,
    /// Whether a task already waits to follow changes of other processes.
    has_follower: AtomicBool,
}

impl SandboxSlot {
    /// Shows lines as the progress of the start.
    fn progress(&self) -> PrepareProgress {
        let lines = self.progress.clone();
        PrepareProgress::new(move |line| {
            lines.send_if_modified(|shown| {
                let is_new = shown.as_deref() != Some(line);
                if is_new {
                    *shown = Some(line.to_owned());
                }
                is_new
            });
        })
    }
}

/// The right to act on one sandbox. It sees changes of intent from before the row is read.
struct SandboxGuard {
    _guard: OwnedMutexGuard<()>,
    /// Keeps the senders alive.
    slot: Arc<SandboxSlot>,
    changes: watch::Receiver<u64>,
    /// The lease, if other processes serve the same host.
    lease: Option<sandbox_lease::SandboxLease>,
}

/// Why an action must stop early.
enum GuardEnd {
    IntentChanged,
    /// Another process may act on the sandbox: this one must stop.
    LeaseLost,
}

impl SandboxGuard {
    /// Runs an idempotent action unless the lease is lost meanwhile.
    async fn unless_lease_lost<T>(
        &self,
        work: impl Future<Output = Result<T, AppError>>,
    ) -> Result<T, AppError> {
        tokio::select! {
            done = work => done,
            () = wait_until_lost(self.lease.as_ref()) => Err(AppError::TakenOver),
        }
    }

    /// Completes when the action must stop.
    async fn wait_for_end(&mut self) -> GuardEnd {
        tokio::select! {
            // The sender lives as long as the slot, so this is never the error of a closed channel.
            _ = self.changes.changed() => GuardEnd::IntentChanged,
            () = wait_until_lost(self.lease.as_ref()) => GuardEnd::LeaseLost,
        }
    }
}

pub(crate) struct ProgressFollower {
    /// Keeps the sender alive.
    _slot: Arc<SandboxSlot>,
    lines: watch::Receiver<Option<String>>,
    last_line: Option<String>,
}

impl ProgressFollower {
    /// The next new line, a second after it was set: a quick preparation produces none.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            let is_news = |line: &Option<String>| line.is_some() && *line != self.last_line;
            // The sender lives as long as the slot, so this is never the error of a closed channel.
            let _ = self.lines.wait_for(is_news).await;
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let line = self.lines.borrow_and_update().clone();
            if let Some(line) = line {
                self.last_line = Some(line.clone());
                return line;
            }
        }
    }
}

impl SandboxReconciler {
    pub(crate) fn new(
        ports: &Ports,
        policy: Policy,
        syncer: ConversationSyncer,
        reporters: KeyCache<Sandbox>,
        tasks: BackgroundTasks,
    ) -> Self {
        Self(Arc::new(ReconcilerShared {
            sandboxes: Arc::clone(&ports.sandboxes),
            host_sandboxes: Arc::clone(&ports.host_sandboxes),
            sandbox_keys: Arc::clone(&ports.sandbox_keys),
            warm: Arc::clone(&ports.warm),
            conversations: Arc::clone(&ports.conversation_reports),
            hosts: Arc::clone(&ports.hosts),
            leases: Arc::clone(&ports.leases),
            specs: Arc::clone(&ports.specs),
            backend: Arc::clone(&ports.backend),
            lifecycle: Arc::clone(&ports.sandbox_lifecycle),
            agents: Arc::clone(&ports.agents),
            agent_lifecycle: Arc::clone(&ports.agent_lifecycle),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            relist_requested: Notify::new(),
            started_at: ports.clock.now(),
            owns_host: AtomicBool::new(false),
            boots: BootSlots::new(policy.max_parallel_boots),
            up: AtomicU32::new(0),
            statuses: Default::default(),
            contact: backend_contact::ContactTracker::default(),
            policy,
            syncer,
            tasks,
            slots: Mutex::default(),
            reporters,
        }))
    }

    /// Number of sandboxes of this host that start or run, as of the last relist and the starts since.
    pub(crate) fn running_count(&self) -> u32 {
        self.0.up.load(Ordering::Relaxed)
    }

    pub(crate) fn count_start(&self) {
        self.0.up.fetch_add(1, Ordering::Relaxed);
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

    async fn acquire(&self, id: &SandboxId) -> SandboxGuard {
        let slot = self.slot(id);
        let guard = Arc::clone(&slot.lock).lock_owned().await;
        let changes = slot.changes.subscribe();
        let lease = self.acquire_lease(id).await;
        SandboxGuard {
            lease,
            _guard: guard,
            slot,
            changes,
        }
    }

    pub(crate) fn progress(&self, id: &SandboxId) -> ProgressFollower {
        let slot = self.slot(id);
        let lines = slot.progress.subscribe();
        ProgressFollower {
            _slot: slot,
            lines,
            last_line: None,
        }
    }

    fn is_idle(&self, id: &SandboxId) -> bool {
        self.slot(id).lock.try_lock().is_ok()
    }

    /// Cancels a running start, after the intent away from running was committed.
    pub(crate) fn cancel_start(&self, id: &SandboxId) {
        self.slot(id).changes.send_modify(|changes| *changes += 1);
    }

    async fn row(&self, id: &SandboxId) -> Result<Option<Sandbox>, AppError> {
        let row = self.0.sandboxes.find(&Scope::System, id).await?;
        // The processes of other hosts act on their own sandboxes.
        Ok(row.filter(|row| row.host == self.0.policy.host))
    }

    /// Acts on a sandbox of this host after another process changed its row.
    pub(crate) async fn follow(&self, id: &SandboxId) -> Result<(), AppError> {
        let Some(row) = self.row(id).await? else {
            return Ok(());
        };
        if self.is_settled(&row) {
            return Ok(());
        }
        if row.desired != DesiredState::Running {
            // Cancels a start in this process.
            self.cancel_start(id);
        }
        // On Postgres the changes of this process are notified too, one for each line of progress. One waiting task
        // follows all of them.
        let slot = self.slot(id);
        if slot.has_follower.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut guard = self.acquire(id).await;
        // Before the row is read: a later change is followed again.
        slot.has_follower.store(false, Ordering::SeqCst);
        match self.row(id).await? {
            Some(row) if !self.is_settled(&row) => self.act(row, &mut guard).await,
            _ => Ok(()),
        }
    }

    fn is_settled(&self, row: &Sandbox) -> bool {
        match row.desired {
            // Each process of a shared host acts on the starts that it requested.
            DesiredState::Running => {
                row.status != SandboxStatus::Starting || self.0.policy.is_host_shared
            }
            DesiredState::Paused => {
                matches!(row.status, SandboxStatus::Paused | SandboxStatus::Missing)
            }
            DesiredState::Deleted => false,
        }
    }

    /// Makes the backend follow the row.
    pub async fn converge(&self, id: &SandboxId) -> Result<(), AppError> {
        let span = tracing::info_span!("sandbox.converge", sandbox.id = %id);
        async {
            let mut guard = self.acquire(id).await;
            let Some(row) = self.row(id).await? else {
                return Ok(());
            };
            self.act(row, &mut guard).await
        }
        .instrument(span)
        .await
    }

    /// The same in the background.
    pub(crate) fn converge_soon(&self, id: &SandboxId) {
        let (reconciler, id) = (self.clone(), id.clone());
        let work = async move { log_failure(&id, reconciler.converge(&id).await) };
        self.0.tasks.spawn(work);
    }

    async fn act(&self, row: Sandbox, guard: &mut SandboxGuard) -> Result<(), AppError> {
        match row.desired {
            DesiredState::Running if row.status.is_up() => {
                self.bring_up(row, guard).await.map(drop)
            }
            // It failed meanwhile and waits for its owner.
            DesiredState::Running => Ok(()),
            DesiredState::Paused => guard.unless_lease_lost(self.pause_sandbox(&row)).await,
            DesiredState::Deleted => guard.unless_lease_lost(self.remove_sandbox(&row)).await,
        }
    }

    /// Returns the running sandbox once its agent server answers; starts it within the caps if needed. For the start
    /// worker.
    pub async fn ensure_running(
        &self,
        id: &SandboxId,
    ) -> Result<(Sandbox, SandboxEndpoints), AppError> {
        let mut guard = self.acquire(id).await;
        let mut row = self.row(id).await?.ok_or_else(start_cancelled)?;
        if row.desired == DesiredState::Running && !row.status.is_up() {
            // It failed since the start was requested, and counts towards no cap.
            let caps = &self.0.policy.caps.get();
            let now = self.0.clock.now();
            let again =
                self.0
                    .sandboxes
                    .set_desired(&Scope::System, id, DesiredState::Running, caps, now);
            row = again.await?.ok_or_else(start_cancelled)?;
        }
        if row.desired != DesiredState::Running {
            return Err(start_cancelled());
        }
        let (mut row, endpoints) = self.bring_up(row, &mut guard).await?;
        row.has_proxy = endpoints.has_proxy;
        Ok((row, endpoints))
    }

    /// Stores facts. Returns `false` if the intent changed meanwhile; the next action follows it.
    async fn record(
        &self,
        row: &Sandbox,
        expected: DesiredState,
        facts: &SandboxFacts,
    ) -> Result<bool, AppError> {
        let now = self.0.clock.now();
        let sandboxes = &self.0.host_sandboxes;
        let recorded = sandboxes.record_facts(&row.id, expected, facts, now).await;
        self.0.reporters.clear();
        Ok(recorded?)
    }
}

/// Logs why a sandbox does not follow its row yet.
pub(crate) fn log_failure(id: &SandboxId, outcome: Result<(), AppError>) {
    if let Err(error) = outcome {
        tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot apply the intent to the sandbox; the reconciler tries again");
    }
}

fn start_cancelled() -> AppError {
    AppError::conflict("The sandbox was paused or deleted while it was starting")
}

pub(crate) fn endpoint(
    cipher: &dyn Cipher,
    sandbox: &Sandbox,
    url: &Url,
) -> Result<AgentEndpoint, AppError> {
    let key = cipher.open(&Sandbox::key_context(&sandbox.id), &sandbox.session_key)?;
    Ok(AgentEndpoint {
        sandbox: sandbox.id.clone(),
        url: url.clone(),
        key,
    })
}
