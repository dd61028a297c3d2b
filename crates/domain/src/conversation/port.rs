//! The port of conversations.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationReport, ConversationView,
    ExecutionStatus,
};
use crate::error::StoreError;
use crate::event::AppendOutcome;
use crate::id::{ConversationId, HostId, SandboxId};
use crate::page::{Page, PageRequest};
use crate::user::scope::Scope;

/// A deleted conversation that its agent server still has. Its sandbox still exists, because other conversations share
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingAgentDeletion {
    pub id: ConversationId,
    /// The sandbox whose agent server still has it.
    pub sandbox_id: SandboxId,
}

/// A conversation in a running sandbox whose status or title may change without a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledConversation {
    pub id: ConversationId,
    pub sandbox_id: SandboxId,
    pub title: Option<String>,
    /// Its stored status; `None` if it is unknown.
    pub execution_status: Option<ExecutionStatus>,
}

/// Conversations, as their owners see and change them. `StartTaskQueue::begin_conversation` and
/// [`ConversationReportRepository::adopt`] insert them.
#[async_trait]
pub trait ConversationRepository: Send + Sync + 'static {
    /// One conversation with its sandbox and children.
    async fn find(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Option<ConversationView>, StoreError>;
    /// Several conversations in the order of `ids`, repetitions included; `None` for unknown ones. The number of
    /// queries does not depend on the number of ids.
    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<ConversationView>>, StoreError>;
    /// A keyset page in the filter's order. It ends before its texts exceed [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES),
    /// but holds at least one conversation if one matches.
    async fn search(
        &self,
        scope: &Scope,
        filter: &ConversationFilter,
        page: &PageRequest,
    ) -> Result<Page<ConversationView>, StoreError>;
    /// Total number of conversations that `search` finds.
    async fn count(&self, scope: &Scope, filter: &ConversationFilter) -> Result<u64, StoreError>;
    /// Applies a change by the owner and sets `updated_at`. An empty change only reads. `None` if there is no such
    /// conversation.
    async fn update(
        &self,
        scope: &Scope,
        id: ConversationId,
        change: &ConversationChange,
        at: Timestamp,
    ) -> Result<Option<ConversationView>, StoreError>;
    /// Appends a pull request's number unless it is recorded already, and sets `updated_at` if it is new. Numbers
    /// beyond [`MAX_PULL_REQUESTS`](crate::conversation::MAX_PULL_REQUESTS) are ignored. `false` if there is no such
    /// conversation.
    async fn add_pull_request(
        &self,
        scope: &Scope,
        id: ConversationId,
        number: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Deletes the conversation and its sub-conversations with their events and start tasks, and records their ids, so
    /// that late reports do not recreate them. Unfinished start tasks end in ERROR. In the same transaction, each
    /// sandbox without another conversation or unfinished start task becomes `DesiredState::Deleted`; for a shared one,
    /// a [`PendingAgentDeletion`] is left. `false` if there is no such conversation.
    async fn delete(
        &self,
        scope: &Scope,
        id: ConversationId,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
}

/// What sandboxes report about their conversations.
#[async_trait]
pub trait ConversationReportRepository: Send + Sync + 'static {
    /// Stores a conversation that the agent server of `conversation.sandbox_id` created by itself. It writes only if
    /// the id is neither stored nor deleted, and returns `Stored { new: 1 }` then, else `Stored { new: 0 }`, `Foreign`
    /// or `Deleted`. A conversation whose start failed in this sandbox is `Deleted`, too, because its agent server may
    /// have continued it. A sandbox with
    /// [`MAX_CONVERSATIONS_FOR_ADOPTION`](crate::conversation::MAX_CONVERSATIONS_FOR_ADOPTION) conversations gets no
    /// more: `Unknown`.
    async fn adopt(&self, conversation: &Conversation) -> Result<AppendOutcome, StoreError>;
    /// Applies a report of sandbox `origin` about one of its conversations.
    async fn apply_report(
        &self,
        origin: &SandboxId,
        id: ConversationId,
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError>;
    /// All conversations of a sandbox, newest first, at most `limit`, for the reconciler.
    async fn list_in_sandbox(
        &self,
        sandbox: &SandboxId,
        limit: usize,
    ) -> Result<Vec<Conversation>, StoreError>;
    /// The conversations that may change without a report, in those sandboxes of a host that are desired to run and
    /// RUNNING. These are conversations whose status is unknown or `running`, and those created after `untitled_since`
    /// with an automatic title. Ordered by sandbox and id, at most `limit`; a full result may be incomplete.
    async fn list_unsettled(
        &self,
        host: &HostId,
        untitled_since: Timestamp,
        limit: usize,
    ) -> Result<Vec<UnsettledConversation>, StoreError>;
    /// Sets the status of a stopped sandbox's `running` conversations to `to`. Returns how many changed.
    async fn settle_running(
        &self,
        sandbox: &SandboxId,
        to: ExecutionStatus,
        at: Timestamp,
    ) -> Result<u64, StoreError>;
}

/// What deleted conversations leave behind: copies in agent servers, and records of their ids.
#[async_trait]
pub trait ConversationDeletionRepository: Send + Sync + 'static {
    /// Deleted conversations that agent servers in RUNNING sandboxes still have, oldest first, at most `limit`. Those
    /// in other sandboxes follow when the sandboxes run again.
    async fn list_pending_agent_deletions(
        &self,
        limit: usize,
    ) -> Result<Vec<PendingAgentDeletion>, StoreError>;
    /// Removes the entry: the agent server has deleted the conversation, or is gone.
    async fn complete_agent_deletion(&self, id: ConversationId) -> Result<(), StoreError>;
    /// Deletes at most `limit` records of conversations that were deleted before `before` and whose sandbox's row is
    /// gone, oldest first; returns how many. While the sandbox exists, a late report could recreate the conversation,
    /// so the record stays.
    async fn prune_deleted(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
