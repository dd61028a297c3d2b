//! Changes that other processes on the same store have committed.

use futures::stream::BoxStream;

use crate::id::{ConversationId, HostId, SandboxId, StartTaskId};

/// A committed change. It is a hint: it may arrive twice, late or not at all, so its receivers also poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChange {
    /// A start task of this host waits for a claim.
    StartTaskQueued(HostId),
    /// The state of a start task changed.
    StartTask(StartTaskId),
    /// The intent or state of a sandbox changed.
    Sandbox {
        id: SandboxId,
        host: HostId,
        /// Whether it shall run.
        is_wanted: bool,
    },
    /// These conversations may have new events. Processes publish it after their commits and for many conversations together:
    /// publishing it in each transaction would delay the others.
    Events(Vec<ConversationId>),
    /// Changes were lost: anything may have changed.
    Gap,
}

/// Publishes the changes of other processes.
pub trait ChangeFeed: Send + Sync + 'static {
    /// Changes from now on, by other processes and possibly by this one. The stream yields nothing if the store belongs
    /// to one process, and ends only with the store.
    fn changes(&self) -> BoxStream<'static, StoreChange>;
}
