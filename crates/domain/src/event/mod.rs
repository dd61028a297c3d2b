//! Events of a conversation: an envelope around the agent server's document, whose schema the agent server defines.

use async_trait::async_trait;
use serde_json::Value;

use crate::clock::Timestamp;
use crate::conversation::ConversationReport;
use crate::error::StoreError;
use crate::id::{ConversationId, EventId, SandboxId};
use crate::page::{Page, PageRequest};
use crate::wire_enum::wire_enum;

mod shorten;

pub use shorten::{BULKY_EVENT_BYTES, BULKY_EVENT_KIND, shorten_document};

/// An event of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The agent server's id; unique in its conversation.
    pub id: EventId,
    /// The `kind` discriminator (`MessageEvent`, …). Unknown kinds are stored like known ones.
    pub kind: String,
    /// Time of the event: the document's `timestamp`. A time without a zone is UTC, because sandboxes run in UTC.
    pub timestamp: Timestamp,
    /// The document, which responses contain unchanged.
    pub body: Value,
}

/// An event with its sequence number in its conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct SequencedEvent {
    /// Greater than that of every event that was committed before in this conversation. The sequence may have gaps.
    pub seq: u64,
    pub event: Event,
}

wire_enum! {
    #[derive(Default)]
    EventOrder {
        /// Oldest first.
        #[default]
        Timestamp = "TIMESTAMP",
        /// Newest first.
        TimestampDesc = "TIMESTAMP_DESC",
    }
}

/// Filter of search and count. Events with the same timestamp are ordered by sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    pub kind: Option<String>,
    /// At or after.
    pub from: Option<Timestamp>,
    pub before: Option<Timestamp>,
}

/// The result of storing a batch from a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOutcome {
    Stored {
        /// Number of events that were not stored before.
        new: usize,
    },
    /// The sandbox has no such conversation. Nothing was written.
    Unknown,
    /// The conversation was deleted. The batch was accepted and dropped.
    Deleted,
    /// The conversation belongs to another sandbox. Nothing was written.
    Foreign,
}

/// Document bytes after which a batch of [`EventStore::list_after`] ends. Each of many followers holds one batch in
/// memory until it is written.
pub const MAX_EVENT_BATCH_BYTES: usize = 256 * 1024;

/// The store of events. Each read checks in its transaction that the scope sees the conversation; outside the scope it
/// finds nothing.
#[async_trait]
pub trait EventStore: Send + Sync + 'static {
    /// Appends events that `origin` sent about one of its conversations and applies `report` to the conversation's row,
    /// in one transaction. Idempotent by event id: a stored event is left as it is. New events always set the
    /// conversation's `updated_at`, because they show that it is in use.
    async fn append(
        &self,
        origin: &SandboxId,
        conversation: ConversationId,
        events: &[Event],
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError>;
    /// Events by id, in the order of `ids`; `None` for unknown ones.
    async fn find_many(
        &self,
        scope: &crate::user::scope::Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, StoreError>;
    /// A keyset page. Its cost does not depend on the conversation's length. It ends before its documents exceed
    /// [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES), but holds at least one event if one matches.
    async fn search(
        &self,
        scope: &crate::user::scope::Scope,
        conversation: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, StoreError>;
    /// Events with a sequence number above `after` (0: from the beginning), in sequence, at most `limit` and within
    /// [`MAX_EVENT_BATCH_BYTES`], but at least one if there is one. `None` if the scope has no such conversation.
    ///
    /// Sequence numbers are assigned in the order of commits: once a reader has seen a number, no smaller one appears.
    /// A reader that always asks for what follows the last number sees every event exactly once.
    async fn list_after(
        &self,
        scope: &crate::user::scope::Scope,
        conversation: ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SequencedEvent>>, StoreError>;
    /// The highest sequence number; 0 without events. `None` if the scope has no such conversation.
    async fn last_sequence(
        &self,
        scope: &crate::user::scope::Scope,
        conversation: ConversationId,
    ) -> Result<Option<u64>, StoreError>;
    async fn count(
        &self,
        scope: &crate::user::scope::Scope,
        conversation: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, StoreError>;
}
