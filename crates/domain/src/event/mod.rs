//! Events of a conversation: an envelope around the agent server's own document, whose schema is not ours to own.

use async_trait::async_trait;
use serde_json::Value;

use crate::clock::Timestamp;
use crate::conversation::ConversationReport;
use crate::error::StoreError;
use crate::id::{ConversationId, EventId, SandboxId};
use crate::page::{Page, PageRequest};

mod shorten;

pub use shorten::{BULKY_EVENT_BYTES, BULKY_EVENT_KIND, shorten_document};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The agent server's id; unique in its conversation.
    pub id: EventId,
    /// The `kind` discriminator (`MessageEvent`, …). Unknown kinds are as good as known ones.
    pub kind: String,
    /// When it happened: the document's `timestamp`, read as UTC when it names no zone (sandboxes run in UTC).
    pub timestamp: Timestamp,
    /// The document, answered verbatim.
    pub body: Value,
}

/// An event with its place in the log of its conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct SequencedEvent {
    /// Greater than that of every event that was committed before it, in this conversation. Numbers may be left out.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

/// Order of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventOrder {
    /// Oldest first.
    #[default]
    Timestamp,
    /// Newest first.
    TimestampDesc,
}

/// What to search or count. Ties of the timestamp are broken by the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only this kind.
    pub kind: Option<String>,
    /// At or after.
    pub from: Option<Timestamp>,
    /// Before.
    pub before: Option<Timestamp>,
}

/// What became of a batch from a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOutcome {
    /// Committed; so many of them were new.
    Stored {
        /// Events not seen before.
        new: usize,
    },
    /// No such conversation in that sandbox: nothing was written.
    Unknown,
    /// The conversation was deleted: accepted and dropped.
    Deleted,
    /// The conversation belongs to another sandbox: nothing was written.
    Foreign,
}

/// Bytes of documents after which a part of what arrived ends: there are many followers, and each holds one part until it is written.
pub const MAX_EVENT_BATCH_BYTES: usize = 256 * 1024;

/// Where events are kept. Visibility of a conversation is checked in the same transaction: reads of a conversation
/// outside the scope find nothing.
#[async_trait]
pub trait EventStore: Send + Sync + 'static {
    /// Appends what `origin` sent about its own conversation and applies `observation` to the conversation's row, in one
    /// transaction. Idempotent by event id: a known id is left as it is. New events are a change of the conversation
    /// (`updated_at`), whatever `observation` says: somebody uses it.
    async fn append(
        &self,
        origin: &SandboxId,
        conversation: ConversationId,
        events: &[Event],
        observation: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError>;
    /// Events by id, in the order asked for; `None` for unknown ones.
    async fn find_many(
        &self,
        scope: &crate::scope::Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, StoreError>;
    /// A keyset page, O(page) whatever the conversation's length. It holds at least one event if there is one, and ends
    /// early before the documents grow beyond [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES).
    async fn search(
        &self,
        scope: &crate::scope::Scope,
        conversation: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, StoreError>;
    /// What arrived after `after` (0: from the beginning), in the order of arrival, at most `limit` and within
    /// [`MAX_EVENT_BATCH_BYTES`] (but at least one, if there is one). `None` if the scope has no such conversation.
    ///
    /// Arrival is the commit: whoever has seen a number will never see a smaller one come up. So who asks again and again
    /// for what came after the last one sees every event once.
    async fn list_after(
        &self,
        scope: &crate::scope::Scope,
        conversation: ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SequencedEvent>>, StoreError>;
    /// The number of what arrived last, 0 for none. `None` if the scope has no such conversation.
    async fn last_sequence(
        &self,
        scope: &crate::scope::Scope,
        conversation: ConversationId,
    ) -> Result<Option<u64>, StoreError>;
    /// How many events match.
    async fn count(
        &self,
        scope: &crate::scope::Scope,
        conversation: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, StoreError>;
}
