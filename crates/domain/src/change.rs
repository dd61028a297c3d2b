//! What other processes on the same store have committed.

use futures::stream::BoxStream;

use crate::id::{ConversationId, HostId, SandboxId, StartTaskId};

/// Something was committed. A hint: it may come twice, late, or not at all, so whoever acts on it also looks now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChange {
    /// There is a start task for this host that nobody has claimed.
    StartTaskQueued(HostId),
    /// A start task has a new state.
    StartTask(StartTaskId),
    /// A sandbox has a new intent or a new state.
    Sandbox {
        /// Which.
        id: SandboxId,
        /// Where it lives.
        host: HostId,
    },
    /// These conversations may have more events. Said after the commit and of many at once: events come in such numbers
    /// that saying it in each of their transactions would hold up the others.
    Events(Vec<ConversationId>),
    /// Hints were lost: anything may have changed.
    Gap,
}

/// Tells what happened elsewhere.
pub trait ChangeFeed: Send + Sync + 'static {
    /// Changes from now on by other processes (and possibly our own). Silent where the store belongs to one process. Ends
    /// only with the store.
    fn changes(&self) -> BoxStream<'static, StoreChange>;
}
