//! Caches what the engine does not know about sandboxes: whether an exit was requested, and which states were reported.
//!
//! ```text
//!   event, reconnect ──► marked ──inspection──► finish: reported if it is a change, cached in any case
//!                          ▲                      ▲
//!     operation starts ────┼── marks wait ────────┘ the generation changes: an older inspection does not count
//!     operation ends ──────┘   and are rechecked
//! ```
//!
//! Events only say *that* a sandbox changed; the inspection decides what is reported. Lost, late and duplicate events are
//! therefore harmless.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxEndpoints};
use tokio::sync::Notify;
use url::Url;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KnownState {
    /// Unknown: an exit is judged by its code.
    #[default]
    Unknown,
    /// It ran; an exit is unexpected.
    Running,
    /// The service stopped it.
    Stopped,
    /// It exited by itself, and the exit was reported.
    Exited,
    /// Only its volume is left.
    VolumeOnly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListedState {
    Running,
    Stopped,
    VolumeOnly,
}

/// The states of all sandboxes, bounded by their number.
#[derive(Debug, Default)]
pub(crate) struct StateCache {
    entries: Mutex<HashMap<SandboxId, CacheEntry>>,
    /// Signals that a sandbox may need a recheck.
    pub(crate) marked: Notify,
}

#[derive(Debug, Default)]
struct CacheEntry {
    state: KnownState,
    /// Why it exited, if the service knows more than the engine.
    cause: Option<String>,
    /// The engine's warnings about its container.
    warnings: Vec<String>,
    /// A process in the sandbox was killed for lack of memory since its last start.
    out_of_memory: bool,
    /// Ports of this machine that lead to it, as last published.
    ports: Vec<u16>,
    /// Operations in progress.
    operations: usize,
    /// Counts starts and ends of operations.
    generation: u64,
    mark: RecheckReason,
    is_rechecking: bool,
}

/// Whether to recheck a sandbox. The greater reason wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum RecheckReason {
    #[default]
    None,
    Event,
    /// The list differs: events were missed.
    MissedEvent,
}

impl CacheEntry {
    fn mark(&mut self, mark: RecheckReason) {
        self.mark = self.mark.max(mark);
    }
}

/// The exclusive right to recheck a sandbox: of two results, the later one must not be recorded first.
#[derive(Debug)]
pub(crate) struct Recheck {
    states: Arc<StateCache>,
    pub(crate) id: SandboxId,
    /// The change happened while the event stream was down.
    pub(crate) is_late: bool,
    generation: u64,
}

/// Held while an operation changes a sandbox. Changes until its end are attributed to it.
#[derive(Debug)]
pub(crate) struct OperationGuard {
    states: Arc<StateCache>,
    id: SandboxId,
}

impl StateCache {
    pub(crate) fn begin(self: &Arc<Self>, id: &SandboxId) -> OperationGuard {
        let mut entries = self.lock();
        let entry = entries.entry(id.clone()).or_default();
        entry.operations += 1;
        entry.generation += 1;
        // The next start publishes other ports.
        entry.ports.clear();
        OperationGuard {
            states: Arc::clone(self),
            id: id.clone(),
        }
    }

    /// The last known state, and the cause of an exit if the engine does not know it.
    pub(crate) fn recall(&self, id: &SandboxId) -> (KnownState, Option<String>) {
        let entries = self.lock();
        entries
            .get(id)
            .map_or((KnownState::Unknown, None), |entry| {
                (entry.state, entry.cause.clone())
            })
    }

    pub(crate) fn set_ports(&self, id: &SandboxId, endpoints: &SandboxEndpoints) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.ports = published_ports_of(endpoints);
        }
    }

    /// Whether the sandbox is known to run, and the port to lead to it.
    pub(crate) fn has_port(&self, id: &SandboxId, port: u16) -> bool {
        let entries = self.lock();
        let entry = entries.get(id);
        entry.is_some_and(|entry| entry.state == KnownState::Running && entry.ports.contains(&port))
    }

    /// Warnings for the owner of a running sandbox.
    pub(crate) fn warnings(&self, id: &SandboxId) -> Vec<String> {
        let entries = self.lock();
        let Some(entry) = entries.get(id) else {
            return Vec::new();
        };
        let warnings = entry.warnings.iter();
        let warnings = warnings.map(|warning| format!("not every limit could be set: {warning}"));
        let cache = entry.out_of_memory.then(|| OUT_OF_MEMORY.to_owned());
        warnings.chain(cache).collect()
    }

    pub(crate) fn mark(&self, id: &SandboxId, out_of_memory: bool) {
        let mut entries = self.lock();
        let entry = entries.entry(id.clone()).or_default();
        entry.mark(RecheckReason::Event);
        entry.out_of_memory |= out_of_memory;
        self.marked.notify_one();
    }

    /// Compares the cache with a list. Marks differences, and records new sandboxes without reporting them.
    pub(crate) fn compare(&self, listed: &HashMap<SandboxId, ListedState>) {
        let mut entries = self.lock();
        for (id, entry) in entries.iter_mut() {
            let listed_state = listed.get(id);
            let differs = match entry.state {
                KnownState::Unknown => listed_state.is_none(),
                KnownState::Running => listed_state != Some(&ListedState::Running),
                KnownState::Stopped | KnownState::Exited => {
                    listed_state != Some(&ListedState::Stopped)
                }
                KnownState::VolumeOnly => listed_state != Some(&ListedState::VolumeOnly),
            };
            if differs {
                entry.mark(RecheckReason::MissedEvent);
            }
        }
        for (id, listed_state) in listed {
            let entry = entries.entry(id.clone()).or_default();
            if entry.state == KnownState::Unknown && entry.operations == 0 {
                entry.state = match listed_state {
                    ListedState::Running => KnownState::Running,
                    ListedState::Stopped => KnownState::Unknown,
                    ListedState::VolumeOnly => KnownState::VolumeOnly,
                };
            }
        }
        self.marked.notify_one();
    }

    /// Takes the marked sandboxes that are neither being changed nor rechecked.
    pub(crate) fn take_rechecks(self: &Arc<Self>) -> Vec<Recheck> {
        let mut entries = self.lock();
        let free = entries.iter_mut().filter(|(_, entry)| {
            entry.mark > RecheckReason::None && entry.operations == 0 && !entry.is_rechecking
        });
        free.map(|(id, entry)| {
            entry.is_rechecking = true;
            Recheck {
                states: Arc::clone(self),
                id: id.clone(),
                is_late: std::mem::take(&mut entry.mark) == RecheckReason::MissedEvent,
                generation: entry.generation,
            }
        })
        .collect()
    }

    /// Records the cause of an unobserved exit, so that its log is read only once.
    pub(crate) fn remember_exit(&self, id: &SandboxId, detail: &str) {
        if let Some(entry) = self.lock().get_mut(id)
            && entry.operations == 0
            && entry.state == KnownState::Unknown
        {
            entry.state = KnownState::Exited;
            entry.cause = Some(detail.to_owned());
        }
    }

    /// Whether no sandbox exists or is being created.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, CacheEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recheck {
    /// Records the observed state (`None`: no resource is left), and reports it if it is a change.
    pub(crate) fn finish(self, observed: Option<BackendState>, report: impl FnOnce(BackendFact)) {
        let mut entries = self.states.lock();
        let Some(entry) = entries.get_mut(&self.id) else {
            return;
        };
        if entry.generation != self.generation {
            // An operation started since: recheck after it.
            entry.mark(RecheckReason::Event);
            return;
        }
        let former = entry.state;
        let Some(state) = observed.filter(|state| *state != BackendState::Absent) else {
            entries.remove(&self.id);
            if former != KnownState::Unknown {
                report(fact(&self.id, BackendState::Absent));
            }
            return;
        };
        entry.cause = None;
        entry.state = match &state {
            BackendState::Running(_) => KnownState::Running,
            BackendState::Exited { detail } => {
                entry.cause = Some(detail.clone());
                KnownState::Exited
            }
            BackendState::Stopped if former == KnownState::Running => KnownState::Stopped,
            BackendState::Remains => KnownState::VolumeOnly,
            BackendState::Stopped | BackendState::Absent => former,
        };
        // A running sandbox that was unknown is not a change.
        let is_change = entry.state != former
            && (former, entry.state) != (KnownState::Unknown, KnownState::Running);
        if is_change {
            report(fact(&self.id, state));
        }
    }
}

/// Allows the next recheck, whatever the result of this one.
impl Drop for Recheck {
    fn drop(&mut self) {
        if let Some(entry) = self.states.lock().get_mut(&self.id) {
            entry.is_rechecking = false;
            if entry.mark > RecheckReason::None {
                self.states.marked.notify_one();
            }
        }
    }
}

pub(crate) fn published_ports_of(endpoints: &SandboxEndpoints) -> Vec<u16> {
    let exposed = endpoints.exposed_urls.iter().map(|exposed| &exposed.url);
    let urls = exposed.chain([&endpoints.agent_url]);
    urls.filter_map(Url::port_or_known_default).collect()
}

const OUT_OF_MEMORY: &str =
    "a program in the sandbox was ended because the sandbox's memory ran out";

fn fact(id: &SandboxId, state: BackendState) -> BackendFact {
    BackendFact {
        id: id.clone(),
        state,
    }
}

impl OperationGuard {
    /// Records the result of the operation, and clears earlier events.
    pub(crate) fn set_state(&self, state: KnownState) {
        self.change(|entry| {
            entry.state = state;
            entry.cause = None;
            entry.out_of_memory = false;
        });
    }

    /// Records an exit, or a stop for this cause.
    pub(crate) fn set_exited(&self, cause: String) {
        self.change(|entry| {
            entry.state = KnownState::Exited;
            entry.cause = Some(cause);
        });
    }

    pub(crate) fn set_warnings(&self, warnings: Vec<String>) {
        self.change(|entry| entry.warnings = warnings);
    }

    /// Records that no resource is left.
    pub(crate) fn set_removed(&self) {
        self.set_state(KnownState::Unknown);
        // The entry is removed with the last operation.
    }

    /// Records that the operation does not know its result.
    pub(crate) fn set_uncertain(&self) {
        self.change(|entry| entry.mark(RecheckReason::Event));
    }

    fn change(&self, change: impl FnOnce(&mut CacheEntry)) {
        let mut entries = self.states.lock();
        change(entries.entry(self.id.clone()).or_default());
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        let mut entries = self.states.lock();
        let Some(entry) = entries.get_mut(&self.id) else {
            return;
        };
        entry.operations -= 1;
        entry.generation += 1;
        if entry.mark > RecheckReason::None {
            self.states.marked.notify_one();
        } else if entry.operations == 0 && entry.state == KnownState::Unknown {
            entries.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests;
