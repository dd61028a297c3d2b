//! Messages said before a conversation is ready, kept until the agent has them.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::conversation::MessageInput;
use crate::error::StoreError;
use crate::id::{ConversationId, StartTaskId, UserId};

/// Messages that wait for one conversation, at most (contract v1, section 3.4).
pub const MOST_PENDING: usize = 10;

/// What a message waits for. Clients name a start task as `task-<32 hex>` before they know its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// The conversation that this task makes.
    Task(StartTaskId),
    /// This conversation.
    Conversation(ConversationId),
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingMessage {
    /// Its id.
    pub id: uuid::Uuid,
    /// Whose it is.
    pub owner: UserId,
    /// For what.
    pub awaited: Awaited,
    /// What was said. May be secret: it is in no log.
    pub message: MessageInput,
    /// When.
    pub created_at: Timestamp,
    /// When its delivery was begun for the last time; what was cut off is looked for at the agent server before it is said again.
    pub tried_at: Option<Timestamp>,
}

/// What became of a message that should wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// It waits as the so-and-so-many-th, from 1.
    At(usize),
    /// [`MOST_PENDING`] wait already.
    Full,
    /// There is no such task or conversation for this user.
    Unknown,
}

/// Messages that wait.
#[async_trait]
pub trait PendingMessageRepository: Send + Sync + 'static {
    /// Adds a message behind those that wait for the same conversation, under whichever name.
    async fn queue(&self, message: &PendingMessage) -> Result<Queued, StoreError>;
    /// Conversations that are ready (their start is, and their sandbox runs) and have messages waiting, of sandboxes of this
    /// host, at most `limit`, those first whose oldest message was tried longest ago.
    async fn deliverable(
        &self,
        host: &crate::id::HostId,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError>;
    /// Messages for a conversation, oldest first.
    async fn waiting(&self, id: ConversationId) -> Result<Vec<PendingMessage>, StoreError>;
    /// Delivery begins. `false` if the message is not there any more.
    async fn begin(&self, id: uuid::Uuid, at: Timestamp) -> Result<bool, StoreError>;
    /// It was delivered.
    async fn delivered(&self, id: uuid::Uuid) -> Result<(), StoreError>;
    /// Forgets messages of before `before` that still wait, at most `limit`; how many there were.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
