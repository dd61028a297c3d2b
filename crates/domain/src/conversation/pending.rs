//! Pending messages: sent before a conversation is ready, and stored until its agent has them.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::conversation::MessageInput;
use crate::coordination::idempotency::{IdempotencyCheck, IdempotentResponse};
use crate::error::StoreError;
use crate::id::{ConversationId, HostId, OwnerId, StartTaskId};

/// Maximum number of pending messages of one conversation.
pub const MAX_PENDING_MESSAGES: usize = 10;

/// Maximum number of notes about dropped messages in one start task.
pub const MAX_START_TASK_NOTES: usize = 20;

/// The conversation that a message is for. Clients name a start task as `task-<32 hex>` before they know its
/// conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageTarget {
    Task(StartTaskId),
    Conversation(ConversationId),
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewPendingMessage {
    pub id: uuid::Uuid,
    pub owner: OwnerId,
    pub target: MessageTarget,
    /// The message. It may be secret and is never logged.
    pub message: MessageInput,
    pub created_at: Timestamp,
    /// For a request with an idempotency key: the response for each possible position of the message
    /// ([`MAX_PENDING_MESSAGES`] of them). Else empty.
    pub responses: Vec<IdempotentResponse>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PendingMessage {
    pub id: uuid::Uuid,
    pub message: MessageInput,
    /// Start of the last delivery attempt. After an interrupted attempt, the service looks for the message in the agent
    /// server before it sends it again.
    pub tried_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// The message is at this position of the queue, from 1.
    Queued(usize),
    /// The queue holds [`MAX_PENDING_MESSAGES`].
    Full,
    /// The user has no such start task or conversation.
    Unknown,
    /// The start of the conversation failed with this cause, so the message can never be delivered.
    Failed(Option<String>),
    /// The request's key was used before, for this or another request. Never [`IdempotencyCheck::New`].
    KeyUsed(IdempotencyCheck),
}

/// Pending messages. They are deleted with their conversation, with its last start task when the start failed, and with
/// their user. A conversation and its start task share one queue.
#[async_trait]
pub trait PendingMessageRepository: Send + Sync + 'static {
    /// Appends a message to the queue of its conversation and stores the response, in one transaction. The idempotency
    /// key is checked first: if it was used before, nothing else is checked. `NotFound` if the user was deleted.
    async fn enqueue(&self, message: &NewPendingMessage) -> Result<EnqueueOutcome, StoreError>;
    /// Conversations of this host with pending messages that can be delivered: their start is READY, and their sandbox
    /// is RUNNING and desired to run. At most `limit`: first those whose first message was never tried, then those with
    /// the earliest attempt.
    async fn list_deliverable(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError>;
    /// The pending messages of a conversation's owner, in order of arrival. Empty if the conversation does not exist.
    async fn list_waiting(&self, id: ConversationId) -> Result<Vec<PendingMessage>, StoreError>;
    /// Begins a delivery attempt. `false` if the message is gone, or another attempt has begun since
    /// `last_tried_at`: of several concurrent callers, exactly one may continue.
    async fn begin_delivery(
        &self,
        id: uuid::Uuid,
        last_tried_at: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Deletes a delivered message, if it exists.
    async fn complete_delivery(&self, id: uuid::Uuid) -> Result<(), StoreError>;
    /// Deletes a message that cannot be delivered, and adds a note to the READY start task of its conversation, if one
    /// exists with fewer than [`MAX_START_TASK_NOTES`] notes.
    async fn drop_with_note(&self, id: uuid::Uuid, note: &str) -> Result<(), StoreError>;
    /// Deletes at most `limit` messages from before `before`, oldest first; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
