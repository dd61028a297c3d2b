//! Messages said before a conversation is ready, kept until the agent has them.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::conversation::MessageInput;
use crate::error::StoreError;
use crate::id::{ConversationId, HostId, StartTaskId, UserId};
use crate::idempotency::{IdempotentResponse, IdempotencyCheck};

/// Messages that wait for one conversation, at most (contract v1, section 3.4).
pub const MAX_PENDING_MESSAGES: usize = 10;

/// Notes about dropped messages in one start task, at most.
pub const MAX_START_TASK_NOTES: usize = 20;

/// What a message waits for. Clients name a start task as `task-<32 hex>` before they know its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageTarget {
    /// The conversation that this task makes.
    Task(StartTaskId),
    /// This conversation.
    Conversation(ConversationId),
}

/// A message that shall wait.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPendingMessage {
    /// Its id.
    pub id: uuid::Uuid,
    /// Whose it is.
    pub owner: UserId,
    /// For what.
    pub awaited: MessageTarget,
    /// What was said. May be secret: it is in no log.
    pub message: MessageInput,
    /// When.
    pub created_at: Timestamp,
    /// When the request has a key of its sender's: the answers to it, by the place that the message may get ([`MAX_PENDING_MESSAGES`]
    /// of them). Else none.
    pub answers: Vec<IdempotentResponse>,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingMessage {
    /// Its id.
    pub id: uuid::Uuid,
    /// What was said.
    pub message: MessageInput,
    /// When its delivery was begun for the last time; what was cut off is looked for at the agent server before it is said again.
    pub tried_at: Option<Timestamp>,
}

/// What became of a message that should wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// It waits as the so-and-so-many-th, from 1.
    At(usize),
    /// [`MAX_PENDING_MESSAGES`] wait already.
    Full,
    /// There is no such task or conversation for this user.
    Unknown,
    /// The start that should make the conversation has failed, with this cause: nobody will ever hear the message.
    Failed(Option<String>),
    /// The request's key was used before: with this answer, or for another request. Never [`IdempotencyCheck::New`].
    Repeated(IdempotencyCheck),
}

/// Messages that wait. They go with their conversation, with the last trace of a start that failed, and with their user.
/// Both names of one conversation (its own and that of its start) are one queue.
#[async_trait]
pub trait PendingMessageRepository: Send + Sync + 'static {
    /// Adds a message behind those that wait for the same conversation, under whichever name, and keeps the answer, in one
    /// transaction. A key that was used before comes first: then nothing else is looked at. `NotFound` if the user was
    /// deleted.
    async fn enqueue(&self, message: &NewPendingMessage) -> Result<EnqueueOutcome, StoreError>;
    /// Conversations that are ready (their start is, and their sandbox runs and is wanted to) and have messages waiting, of
    /// sandboxes of this host, at most `limit`: first those whose first message was never tried, then those where that is
    /// longest ago.
    async fn list_deliverable(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError>;
    /// Messages of the owner of a conversation for it, in the order in which they came. None for a conversation that is not
    /// there.
    async fn list_waiting(&self, id: ConversationId) -> Result<Vec<PendingMessage>, StoreError>;
    /// Delivery begins. `false` if the message is not there any more, or somebody has begun since `last`: exactly one of
    /// several concurrent callers may go on.
    async fn begin_delivery(
        &self,
        id: uuid::Uuid,
        last: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// It was delivered. Fine if it is not there.
    async fn complete_delivery(&self, id: uuid::Uuid) -> Result<(), StoreError>;
    /// It never will be: it goes, and the note is added to the READY task of its conversation, if there is one that has
    /// fewer than [`MAX_START_TASK_NOTES`].
    async fn drop_with_note(&self, id: uuid::Uuid, note: &str) -> Result<(), StoreError>;
    /// Forgets messages of before `before` that still wait, oldest first, at most `limit`; how many there were.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
