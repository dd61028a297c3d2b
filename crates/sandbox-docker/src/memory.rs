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
pub(crate) enum Life {
    /// Nothing: an end while nobody watched is judged by its exit code.
    #[default]
    Unknown,
    /// It ran: an end is one that nobody asked for.
    Up,
    /// We put it down.
    Down,
    /// It ended by itself, and that was told.
    Ended,
    /// Only its volume was left.
    Remains,
}

/// What a list says about a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rough {
    Up,
    Down,
    Volume,
}

/// Knowledge about all sandboxes, bounded by how many there are.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    entries: Mutex<HashMap<SandboxId, Entry>>,
    /// There may be something to look at.
    pub(crate) marked: Notify,
}

#[derive(Debug, Default)]
struct Entry {
    life: Life,
    /// Why it ended, where that is known better than the engine knows it.
    cause: Option<String>,
    /// What the engine could not do for it, in its words.
    warnings: Vec<String>,
    /// A program in it was ended because memory ran out, since it was last started.
    out_of_memory: bool,
    /// Ports of this machine that the engine has last said lead to it.
    ports: Vec<u16>,
    /// Operations under way.
    busy: usize,
    /// Counts the beginnings and ends of operations.
    turns: u64,
    mark: Mark,
    is_looked_at: bool,
}

/// Whether to look at a sandbox. The greater one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Mark {
    #[default]
    No,
    Now,
    /// For what happened while nobody listened.
    Late,
}

impl Entry {
    fn mark(&mut self, mark: Mark) {
        self.mark = self.mark.max(mark);
    }
}

/// The right to look at a sandbox, for one at a time: the later of two looks must not be concluded first.
#[derive(Debug)]
pub(crate) struct Look {
    memory: Arc<Memory>,
    pub(crate) id: SandboxId,
    /// What there is to see happened while nobody listened.
    pub(crate) is_late: bool,
    turns: u64,
}

/// Held while an operation changes a sandbox: what happens meanwhile is its doing, until it ends.
#[derive(Debug)]
pub(crate) struct Operation {
    memory: Arc<Memory>,
    id: SandboxId,
}

impl Memory {
    pub(crate) fn begin(self: &Arc<Self>, id: &SandboxId) -> Operation {
        let mut entries = self.lock();
        let entry = entries.entry(id.clone()).or_default();
        entry.busy += 1;
        entry.turns += 1;
        // A container that is started again gets others.
        entry.ports.clear();
        Operation {
            memory: Arc::clone(self),
            id: id.clone(),
        }
    }

    /// What was last known, and the cause of an end that the engine does not know.
    pub(crate) fn recall(&self, id: &SandboxId) -> (Life, Option<String>) {
        let entries = self.lock();
        entries
            .get(id)
            .map_or((Life::Unknown, None), |it| (it.life, it.cause.clone()))
    }

    /// Remembers which ports lead to it.
    pub(crate) fn publishes(&self, id: &SandboxId, endpoints: &SandboxEndpoints) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.ports = ports_of(endpoints);
        }
    }

    /// Whether it is known to run, and this port to lead to it.
    pub(crate) fn has_port(&self, id: &SandboxId, port: u16) -> bool {
        let entries = self.lock();
        let entry = entries.get(id);
        entry.is_some_and(|it| it.life == Life::Up && it.ports.contains(&port))
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
        entry.mark(Mark::Now);
        entry.out_of_memory |= out_of_memory;
        self.marked.notify_one();
    }

    /// Compares with a list: what differs is marked, what was not known is remembered without being told.
    pub(crate) fn compare(&self, listed: &HashMap<SandboxId, Rough>) {
        let mut entries = self.lock();
        for (id, entry) in entries.iter_mut() {
            let found = listed.get(id);
            let differs = match entry.life {
                Life::Unknown => found.is_none(),
                Life::Up => found != Some(&Rough::Up),
                Life::Down | Life::Ended => found != Some(&Rough::Down),
                Life::Remains => found != Some(&Rough::Volume),
            };
            if differs {
                entry.mark(Mark::Late);
            }
        }
        for (id, rough) in listed {
            let entry = entries.entry(id.clone()).or_default();
            if entry.life == Life::Unknown && entry.busy == 0 {
                entry.life = match rough {
                    Rough::Up => Life::Up,
                    Rough::Down => Life::Unknown,
                    Rough::Volume => Life::Remains,
                };
            }
        }
        self.marked.notify_one();
    }

    /// The marked sandboxes that nobody is at; their marks are taken away.
    pub(crate) fn looks(self: &Arc<Self>) -> Vec<Look> {
        let mut entries = self.lock();
        let free = entries
            .iter_mut()
            .filter(|(_, entry)| entry.mark > Mark::No && entry.busy == 0 && !entry.is_looked_at);
        free.map(|(id, entry)| {
            entry.is_looked_at = true;
            Look {
                memory: Arc::clone(self),
                id: id.clone(),
                is_late: std::mem::take(&mut entry.mark) == Mark::Late,
                turns: entry.turns,
            }
        })
        .collect()
    }

    /// Remembers why one ended that nobody watched, so that its log is read once.
    pub(crate) fn learn_end(&self, id: &SandboxId, detail: &str) {
        if let Some(entry) = self.lock().get_mut(id)
            && entry.busy == 0
            && entry.life == Life::Unknown
        {
            entry.life = Life::Ended;
            entry.cause = Some(detail.to_owned());
        }
    }

    /// Whether nothing is known to exist or being made.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look {
    /// Remembers what was found (`None`: nothing of it), and tells it if it is news.
    pub(crate) fn conclude(self, found: Option<BackendState>, tell: impl FnOnce(BackendFact)) {
        let mut entries = self.memory.lock();
        let Some(entry) = entries.get_mut(&self.id) else {
            return;
        };
        if entry.turns != self.turns {
            // An operation came between: another look is due when it is over.
            entry.mark(Mark::Now);
            return;
        }
        let before = entry.life;
        let Some(state) = found.filter(|state| *state != BackendState::Absent) else {
            entries.remove(&self.id);
            if before != Life::Unknown {
                tell(fact(&self.id, BackendState::Absent));
            }
            return;
        };
        entry.cause = None;
        entry.life = match &state {
            BackendState::Running(_) => Life::Up,
            BackendState::Exited { detail } => {
                entry.cause = Some(detail.clone());
                Life::Ended
            }
            BackendState::Stopped if before == Life::Up => Life::Down,
            BackendState::Remains => Life::Remains,
            BackendState::Stopped | BackendState::Absent => before,
        };
        // That something runs which nothing was known of is no change.
        let is_news = entry.life != before && (before, entry.life) != (Life::Unknown, Life::Up);
        if is_news {
            tell(fact(&self.id, state));
        }
    }
}

/// Whatever became of the look, the next one may be taken.
impl Drop for Look {
    fn drop(&mut self) {
        if let Some(entry) = self.memory.lock().get_mut(&self.id) {
            entry.is_looked_at = false;
            if entry.mark > Mark::No {
                self.memory.marked.notify_one();
            }
        }
    }
}

/// The ports that lead to a sandbox.
pub(crate) fn ports_of(endpoints: &SandboxEndpoints) -> Vec<u16> {
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

impl Operation {
    /// What the operation made of it. Forgets what happened before.
    pub(crate) fn now(&self, life: Life) {
        self.change(|entry| {
            entry.life = life;
            entry.cause = None;
            entry.out_of_memory = false;
        });
    }

    /// It ended by itself, or we put it down for this cause.
    pub(crate) fn ended(&self, cause: String) {
        self.change(|entry| {
            entry.life = Life::Ended;
            entry.cause = Some(cause);
        });
    }

    /// Its container was made anew, and this is what the engine had to say.
    pub(crate) fn made(&self, warnings: Vec<String>) {
        self.change(|entry| entry.warnings = warnings);
    }

    /// Nothing is left of it.
    pub(crate) fn gone(&self) {
        self.now(Life::Unknown);
        // The entry itself goes when the last operation ends.
    }

    /// The operation does not know what it left behind.
    pub(crate) fn unsure(&self) {
        self.change(|entry| entry.mark(Mark::Now));
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.memory.lock();
        change(entries.entry(self.id.clone()).or_default());
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let mut entries = self.memory.lock();
        let Some(entry) = entries.get_mut(&self.id) else {
            return;
        };
        entry.busy -= 1;
        entry.turns += 1;
        if entry.mark > Mark::No {
            self.memory.marked.notify_one();
        } else if entry.busy == 0 && entry.life == Life::Unknown {
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
    fn up() -> Arc<Memory> {
        let memory = Arc::new(Memory::default());
        memory.begin(&id()).now(Life::Up);
        memory
    }

    /// What is told when the marked sandbox is found like this.
    fn told(memory: &Arc<Memory>, found: impl Into<Option<BackendState>>) -> Vec<BackendState> {
        let found = found.into();
        let mut told = Vec::new();
        for look in memory.looks() {
            look.conclude(found.clone(), |fact| told.push(fact.state));
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
        assert_eq!(memory.recall(&id()), (Life::Ended, cause));
        memory.mark(&id(), false);
        assert_eq!(told(&memory, None), [BackendState::Absent]);
        assert!(memory.is_empty());
    }

    #[test]
    fn what_an_operation_does_is_no_news() {
        let memory = up();
        let stop = memory.begin(&id());
        memory.mark(&id(), false);
        assert_eq!(memory.looks().len(), 0, "marks wait for the operation");
        stop.now(Life::Down);
        drop(stop);
        assert_eq!(told(&memory, BackendState::Stopped), []);
        let remove = memory.begin(&id());
        memory.mark(&id(), false);
        remove.gone();
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
        let look = memory.looks().remove(0);
        memory.begin(&id()).now(Life::Up);
        look.conclude(Some(exited()), |fact| panic!("told: {fact:?}"));
        assert_eq!(memory.recall(&id()).0, Life::Up);
        memory.mark(&id(), false);
        assert_eq!(told(&memory, exited()).len(), 1, "and another one is taken");
    }

    #[test]
    fn one_look_at_a_time() {
        let memory = up();
        memory.mark(&id(), false);
        let look = memory.looks().remove(0);
        memory.mark(&id(), false);
        assert_eq!(memory.looks().len(), 0);
        drop(look);
        assert_eq!(
            memory.looks().len(),
            1,
            "also after one that came to nothing"
        );
    }

    #[test]
    fn a_list_marks_what_differs() {
        let memory = up();
        let listed = |rough: Option<Rough>| rough.map(|rough| (id(), rough)).into_iter().collect();
        memory.compare(&listed(Some(Rough::Up)));
        assert_eq!(memory.looks().len(), 0);
        for rough in [Some(Rough::Down), Some(Rough::Volume), None] {
            memory.compare(&listed(rough));
            let looks = memory.looks();
            assert!(looks.len() == 1 && looks[0].is_late, "{rough:?}");
        }
        memory.mark(&id(), false);
        assert!(!memory.looks()[0].is_late);
    }

    #[test]
    fn what_is_found_at_first_is_remembered_and_not_told() {
        let memory = Arc::new(Memory::default());
        let life = |rough: Rough| {
            memory.compare(&[(id(), rough)].into());
            memory.recall(&id()).0
        };
        assert_eq!(life(Rough::Down), Life::Unknown, "judged by its exit code");
        assert_eq!(life(Rough::Up), Life::Up);
        assert_eq!(memory.looks().len(), 0);
        memory.compare(&HashMap::new());
        assert_eq!(told(&memory, None), [BackendState::Absent]);
        assert_eq!(life(Rough::Volume), Life::Remains);
    }
}
