//! `ChangeFeed` over `LISTEN` and `NOTIFY`: reports what other processes commit to the same Postgres.
//!
//! The transaction that makes a change also sends its notification, so subscribers never see a notification of an
//! uncommitted change. A process also receives its own notifications; handling one only rereads a row.
//!
//! New events are not part of it. Postgres serializes the commits of transactions that notify, and processes store thousands of
//! events a second. So a process collects the ids of conversations with new events after the commit, and the listener
//! notifies in batches. The batches have a channel of their own, because earlier releases read unknown notifications as
//! [`StoreChange::Gap`]. A crash or an overflow loses hints; subscribers therefore also poll from time to time.

#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::sync::PoisonError;

use domain::coordination::change::StoreChange;
use domain::id::ConversationId;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::AbortHandle;

use crate::database::connection::{AnyConnection, Target};
use crate::database::hints::PendingHints;
#[cfg(feature = "postgres")]
use crate::database::listener;
use crate::error::TransactionError;

/// Changes that a slow subscriber may miss before it receives a gap notice.
const CHANNEL_CAPACITY: usize = 1024;
/// Conversations whose hints may be pending at a time.
const MAX_PENDING_HINTS: usize = 1_000;

/// Distributes changes to subscribers. Silent for `SQLite`, whose file belongs to one process.
pub(crate) struct SqlChangeFeed {
    sender: broadcast::Sender<StoreChange>,
    listener: Option<AbortHandle>,
    pending: PendingHints,
}

impl SqlChangeFeed {
    /// Connects and starts to listen. Blocks.
    pub(crate) fn start(target: &Target, runtime: &Handle) -> Self {
        let (sender, _) = broadcast::channel(CHANNEL_CAPACITY);
        let pending = PendingHints::default();
        let listener = match target {
            Target::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => Some(listener::start(
                target,
                (sender.clone(), Arc::clone(&pending)),
                runtime,
            )),
        };
        Self {
            sender,
            listener,
            pending,
        }
    }

    /// The changes from now on.
    pub(crate) fn subscribe(&self) -> BoxStream<'static, StoreChange> {
        stream::unfold(self.sender.subscribe(), |mut changes| async move {
            match changes.recv().await {
                Ok(change) => Some((change, changes)),
                Err(RecvError::Lagged(_)) => Some((StoreChange::Gap, changes)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }

    /// Queues a hint to other processes that this conversation has new events. Cheap.
    pub(crate) fn hint(&self, conversation: ConversationId) {
        if self.listener.is_none() {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_PENDING_HINTS {
            pending.insert(conversation);
        }
    }
}

impl Drop for SqlChangeFeed {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// Notifies all processes on this database once the transaction commits.
pub(crate) fn announce(
    conn: &mut AnyConnection,
    change: &StoreChange,
) -> Result<(), TransactionError> {
    match conn {
        AnyConnection::Sqlite(_) => {}
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => {
            listener::notify(conn, change)?;
        }
    }
    Ok(())
}
