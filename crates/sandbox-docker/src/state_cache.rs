//! What this object knows about sandboxes that the engine cannot tell: whether an end was asked for, and what it has
//! already told.
//!
//! ```text
//!   event, reconnect ──► marked ──looked at──► conclude: told if it is news, remembered in any case
//!                          ▲                      ▲
//!     operation begins ────┼── marks wait ────────┘ counts again: a look from before it does not count
//!     operation ends ──────┘   and are looked at now
//! ```
//!
//! Events only say *that* something happened; what is told is always what a look found, so lost, late and doubled events
//! do no harm.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::SandboxId;
use domain::sandbox::{BackendFact, BackendState, SandboxEndpoints};
use tokio::sync::Notify;
use url::Url;

/// What was last known of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KnownState {
    /// Nothing: an end while nobody watched is judged by its exit code.
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

/// What a list says about a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListedState {
    Running,
    Stopped,
    VolumeOnly,
}

/// Knowledge about all sandboxes, bounded by how many there are.
#[derive(Debug, Default)]
pub(crate) struct StateCache {
    entries: Mutex<HashMap<SandboxId, CacheEntry>>,
    /// There may be something to look at.
    pub(crate) marked: Notify,
}

#[derive(Debug, Default)]
struct CacheEntry {
    life: KnownState,
    /// Why it ended, where that is known better than the engine knows it.
    cause: Option<String>,
    /// What the engine could not do for it, in its words.
    warnings: Vec<String>,
    /// A program in it was ended because memory ran out, since it was last started.
    out_of_memory: bool,
    /// Ports of this machine that the engine has last said lead to it.
    ports: Vec<u16>,
    /// Operations under way.
    operations: usize,
    /// Counts the beginnings and ends of operations.
    generation: u64,
    mark: RecheckReason,
    is_rechecking: bool,
}

/// Whether to look at a sandbox. The greater one wins.
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

/// The right to look at a sandbox, for one at a time: the later of two looks must not be concluded first.
#[derive(Debug)]
pub(crate) struct Recheck {
    states: Arc<StateCache>,
    pub(crate) id: SandboxId,
    /// What there is to see happened while nobody listened.
    pub(crate) is_late: bool,
    generation: u64,
}

/// Held while an operation changes a sandbox: what happens meanwhile is its doing, until it ends.
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
        // A container that is started again gets others.
        entry.ports.clear();
        OperationGuard {
            states: Arc::clone(self),
            id: id.clone(),
        }
    }

    /// What was last known, and the cause of an end that the engine does not know.
    pub(crate) fn recall(&self, id: &SandboxId) -> (KnownState, Option<String>) {
        let entries = self.lock();
        entries
            .get(id)
            .map_or((KnownState::Unknown, None), |it| (it.life, it.cause.clone()))
    }

    /// Remembers which ports lead to it.
    pub(crate) fn publishes(&self, id: &SandboxId, endpoints: &SandboxEndpoints) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.ports = published_ports_of(endpoints);
        }
    }

    /// Whether it is known to run, and this port to lead to it.
    pub(crate) fn has_port(&self, id: &SandboxId, port: u16) -> bool {
        let entries = self.lock();
        let entry = entries.get(id);
        entry.is_some_and(|it| it.life == KnownState::Running && it.ports.contains(&port))
    }

    /// What the owner of a running sandbox should know.
    pub(crate) fn notes(&self, id: &SandboxId) -> Vec<String> {
        let entries = self.lock();
        let Some(entry) = entries.get(id) else {
            return Vec::new();
        };
        let warnings = entry.warnings.iter();
        let warnings = warnings.map(|it| format!("not every limit could be set: {it}"));
        let memory = entry.out_of_memory.then(|| OUT_OF_MEMORY.to_owned());
        warnings.chain(memory).collect()
    }

    /// Something happened to this sandbox.
    pub(crate) fn mark(&self, id: &SandboxId, out_of_memory: bool) {
        let mut entries = self.lock();
        let entry = entries.entry(id.clone()).or_default();
        entry.mark(RecheckReason::Event);
        entry.out_of_memory |= out_of_memory;
        self.marked.notify_one();
    }

    /// Compares with a list: what differs is marked, what was not known is remembered without being told.
    pub(crate) fn compare(&self, listed: &HashMap<SandboxId, ListedState>) {
        let mut entries = self.lock();
        for (id, entry) in entries.iter_mut() {
            let found = listed.get(id);
            let differs = match entry.life {
                KnownState::Unknown => found.is_none(),
                KnownState::Running => found != Some(&ListedState::Running),
                KnownState::Stopped | KnownState::Exited => found != Some(&ListedState::Stopped),
                KnownState::VolumeOnly => found != Some(&ListedState::VolumeOnly),
            };
            if differs {
                entry.mark(RecheckReason::MissedEvent);
            }
        }
        for (id, rough) in listed {
            let entry = entries.entry(id.clone()).or_default();
            if entry.life == KnownState::Unknown && entry.operations == 0 {
                entry.life = match rough {
                    ListedState::Running => KnownState::Running,
                    ListedState::Stopped => KnownState::Unknown,
                    ListedState::VolumeOnly => KnownState::VolumeOnly,
                };
            }
        }
        self.marked.notify_one();
    }

    /// The marked sandboxes that nobody is at; their marks are taken away.
    pub(crate) fn take_rechecks(self: &Arc<Self>) -> Vec<Recheck> {
        let mut entries = self.lock();
        let free = entries
            .iter_mut()
            .filter(|(_, entry)| entry.mark > RecheckReason::None && entry.operations == 0 && !entry.is_rechecking);
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

    /// Remembers why one ended that nobody watched, so that its log is read once.
    pub(crate) fn remember_exit(&self, id: &SandboxId, detail: &str) {
        if let Some(entry) = self.lock().get_mut(id)
            && entry.operations == 0
            && entry.life == KnownState::Unknown
        {
            entry.life = KnownState::Exited;
            entry.cause = Some(detail.to_owned());
        }
    }

    /// Whether nothing is known to exist or being made.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, CacheEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recheck {
    /// Remembers what was found (`None`: nothing of it), and tells it if it is news.
    pub(crate) fn finish(self, found: Option<BackendState>, tell: impl FnOnce(BackendFact)) {
        let mut entries = self.states.lock();
        let Some(entry) = entries.get_mut(&self.id) else {
            return;
        };
        if entry.generation != self.generation {
            // An operation came between: another look is due when it is over.
            entry.mark(RecheckReason::Event);
            return;
        }
        let before = entry.life;
        let Some(state) = found.filter(|state| *state != BackendState::Absent) else {
            entries.remove(&self.id);
            if before != KnownState::Unknown {
                tell(fact(&self.id, BackendState::Absent));
            }
            return;
        };
        entry.cause = None;
        entry.life = match &state {
            BackendState::Running(_) => KnownState::Running,
            BackendState::Exited { detail } => {
                entry.cause = Some(detail.clone());
                KnownState::Exited
            }
            BackendState::Stopped if before == KnownState::Running => KnownState::Stopped,
            BackendState::Remains => KnownState::VolumeOnly,
            BackendState::Stopped | BackendState::Absent => before,
        };
        // That something runs which nothing was known of is no change.
        let is_news = entry.life != before && (before, entry.life) != (KnownState::Unknown, KnownState::Running);
        if is_news {
            tell(fact(&self.id, state));
        }
    }
}

/// Whatever became of the look, the next one may be taken.
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

/// The ports that lead to a sandbox.
pub(crate) fn published_ports_of(endpoints: &SandboxEndpoints) -> Vec<u16> {
    let exposed = endpoints.exposed_urls.iter().map(|it| &it.url);
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
    /// What the operation made of it. Forgets what happened before.
    pub(crate) fn set_state(&self, life: KnownState) {
        self.change(|entry| {
            entry.life = life;
            entry.cause = None;
            entry.out_of_memory = false;
        });
    }

    /// It ended by itself, or we put it down for this cause.
    pub(crate) fn set_exited(&self, cause: String) {
        self.change(|entry| {
            entry.life = KnownState::Exited;
            entry.cause = Some(cause);
        });
    }

    /// Its container was made anew, and this is what the engine had to say.
    pub(crate) fn set_warnings(&self, warnings: Vec<String>) {
        self.change(|entry| entry.warnings = warnings);
    }

    /// Nothing is left of it.
    pub(crate) fn set_removed(&self) {
        self.set_state(KnownState::Unknown);
        // The entry itself goes when the last operation ends.
    }

    /// The operation does not know what it left behind.
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
        } else if entry.operations == 0 && entry.life == KnownState::Unknown {
            entries.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SandboxId {
        SandboxId::parse("s1").unwrap()
    }

    fn exited() -> BackendState {
        let detail = "it crashed".to_owned();
        BackendState::Exited { detail }
    }

    /// A memory in which the sandbox runs.
    fn up() -> Arc<StateCache> {
        let memory = Arc::new(StateCache::default());
        memory.begin(&id()).set_state(KnownState::Running);
        memory
    }

    /// What is told when the marked sandbox is found like this.
    fn told(memory: &Arc<StateCache>, found: impl Into<Option<BackendState>>) -> Vec<BackendState> {
        let found = found.into();
        let mut told = Vec::new();
        for look in memory.take_rechecks() {
            look.finish(found.clone(), |fact| told.push(fact.state));
        }
        told
    }

    #[test]
    fn an_end_is_told_once() {
        let memory = up();
        assert_eq!(told(&memory, exited()), [], "nothing is marked");
        memory.mark(&id(), false);
        memory.mark(&id(), false);
        assert_eq!(told(&memory, exited()), [exited()]);
        memory.mark(&id(), false);
        assert_eq!(told(&memory, exited()), []);
        let cause = Some("it crashed".to_owned());
        assert_eq!(memory.recall(&id()), (KnownState::Exited, cause));
        memory.mark(&id(), false);
        assert_eq!(told(&memory, None), [BackendState::Absent]);
        assert!(memory.is_empty());
    }

    #[test]
    fn what_an_operation_does_is_no_news() {
        let memory = up();
        let stop = memory.begin(&id());
        memory.mark(&id(), false);
        assert_eq!(memory.take_rechecks().len(), 0, "marks wait for the operation");
        stop.set_state(KnownState::Stopped);
        drop(stop);
        assert_eq!(told(&memory, BackendState::Stopped), []);
        let remove = memory.begin(&id());
        memory.mark(&id(), false);
        remove.set_removed();
        drop(remove);
        assert_eq!(told(&memory, None), []);
        assert!(memory.is_empty());
        memory.mark(&id(), false);
        assert_eq!(told(&memory, None), [], "an event that comes late");
        assert!(memory.is_empty());
    }

    #[test]
    fn a_look_from_before_an_operation_does_not_count() {
        let memory = up();
        memory.mark(&id(), false);
        let look = memory.take_rechecks().remove(0);
        memory.begin(&id()).set_state(KnownState::Running);
        look.finish(Some(exited()), |fact| panic!("told: {fact:?}"));
        assert_eq!(memory.recall(&id()).0, KnownState::Running);
        memory.mark(&id(), false);
        assert_eq!(told(&memory, exited()).len(), 1, "and another one is taken");
    }

    #[test]
    fn one_look_at_a_time() {
        let memory = up();
        memory.mark(&id(), false);
        let look = memory.take_rechecks().remove(0);
        memory.mark(&id(), false);
        assert_eq!(memory.take_rechecks().len(), 0);
        drop(look);
        assert_eq!(
            memory.take_rechecks().len(),
            1,
            "also after one that came to nothing"
        );
    }

    #[test]
    fn a_list_marks_what_differs() {
        let memory = up();
        let listed = |rough: Option<ListedState>| rough.map(|rough| (id(), rough)).into_iter().collect();
        memory.compare(&listed(Some(ListedState::Running)));
        assert_eq!(memory.take_rechecks().len(), 0);
        for rough in [Some(ListedState::Stopped), Some(ListedState::VolumeOnly), None] {
            memory.compare(&listed(rough));
            let take_rechecks = memory.take_rechecks();
            assert!(take_rechecks.len() == 1 && take_rechecks[0].is_late, "{rough:?}");
        }
        memory.mark(&id(), false);
        assert!(!memory.take_rechecks()[0].is_late);
    }

    #[test]
    fn what_is_found_at_first_is_remembered_and_not_told() {
        let memory = Arc::new(StateCache::default());
        let life = |rough: ListedState| {
            memory.compare(&[(id(), rough)].into());
            memory.recall(&id()).0
        };
        assert_eq!(life(ListedState::Stopped), KnownState::Unknown, "judged by its exit code");
        assert_eq!(life(ListedState::Running), KnownState::Running);
        assert_eq!(memory.take_rechecks().len(), 0);
        memory.compare(&HashMap::new());
        assert_eq!(told(&memory, None), [BackendState::Absent]);
        assert_eq!(life(ListedState::VolumeOnly), KnownState::VolumeOnly);
    }
}
