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
use domain::sandbox::{BackendFact, BackendState};
use tokio::sync::Notify;

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
    /// What its owner should know though it runs.
    notes: Vec<String>,
    /// Operations under way.
    busy: usize,
    /// Counts the beginnings and ends of operations.
    turns: u64,
    is_marked: bool,
    is_looked_at: bool,
}

/// The right to look at a sandbox, for one at a time: the later of two looks must not be concluded first.
#[derive(Debug)]
pub(crate) struct Look {
    memory: Arc<Memory>,
    pub(crate) id: SandboxId,
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

    pub(crate) fn notes(&self, id: &SandboxId) -> Vec<String> {
        let entries = self.lock();
        entries.get(id).map_or_else(Vec::new, |it| it.notes.clone())
    }

    /// Something for the owner of a sandbox that runs, said once. At most a few.
    pub(crate) fn note(&self, id: &SandboxId, note: String) {
        if let Some(entry) = self.lock().get_mut(id)
            && entry.notes.len() < 8
            && !entry.notes.contains(&note)
        {
            entry.notes.push(note);
        }
    }

    /// Something happened to this sandbox.
    pub(crate) fn mark(&self, id: &SandboxId) {
        self.lock().entry(id.clone()).or_default().is_marked = true;
        self.marked.notify_one();
    }

    /// Compares with a list: what differs is marked, what was not known is remembered without being told.
    pub(crate) fn compare(&self, listed: &HashMap<SandboxId, Rough>) {
        let mut entries = self.lock();
        for (id, entry) in entries.iter_mut() {
            let found = listed.get(id);
            entry.is_marked |= match entry.life {
                Life::Unknown => found.is_none(),
                Life::Up => found != Some(&Rough::Up),
                Life::Down | Life::Ended => found != Some(&Rough::Down),
                Life::Remains => found != Some(&Rough::Volume),
            };
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
            .filter(|(_, entry)| entry.is_marked && entry.busy == 0 && !entry.is_looked_at);
        free.map(|(id, entry)| {
            entry.is_marked = false;
            entry.is_looked_at = true;
            Look {
                memory: Arc::clone(self),
                id: id.clone(),
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
            entry.is_marked = true;
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
            if entry.is_marked {
                self.memory.marked.notify_one();
            }
        }
    }
}

fn fact(id: &SandboxId, state: BackendState) -> BackendFact {
    BackendFact {
        id: id.clone(),
        state,
    }
}

impl Operation {
    /// What the operation made of it. Forgets why it ended before.
    pub(crate) fn now(&self, life: Life) {
        self.change(|entry| {
            entry.life = life;
            entry.cause = None;
        });
    }

    /// It ended by itself, or we put it down for this cause.
    pub(crate) fn ended(&self, cause: String) {
        self.change(|entry| {
            entry.life = Life::Ended;
            entry.cause = Some(cause);
        });
    }

    /// It was made or started anew.
    pub(crate) fn notes(&self, notes: Vec<String>) {
        self.change(|entry| entry.notes = notes);
    }

    /// Nothing is left of it.
    pub(crate) fn gone(&self) {
        self.now(Life::Unknown);
        // The entry itself goes when the last operation ends.
    }

    /// The operation does not know what it left behind.
    pub(crate) fn unsure(&self) {
        self.change(|entry| entry.is_marked = true);
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
        if entry.is_marked {
            self.memory.marked.notify_one();
        } else if entry.busy == 0 && entry.life == Life::Unknown {
            entries.remove(&self.id);
        }
    }
}
