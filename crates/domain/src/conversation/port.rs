//! The conversation repository.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationView, ExecutionStatus,
    ConversationReport,
};
use crate::error::StoreError;
use crate::event::AppendOutcome;
use crate::id::{ConversationId, HostId, SandboxId};
use crate::page::{Page, PageRequest};
use crate::scope::Scope;

/// A deleted conversation whose agent server still has to be told (its sandbox lives on, shared with others).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingAgentDeletion {
    /// The conversation.
    pub id: ConversationId,
    /// Where the agent server still has it.
    pub sandbox_id: SandboxId,
}

/// A conversation in a running sandbox of which its agent server may have news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledConversation {
    /// The conversation.
    pub id: ConversationId,
    /// The sandbox it is in.
    pub sandbox_id: SandboxId,
    /// Its title as stored.
    pub title: Option<String>,
    /// Its status as stored; `None` is not known.
    pub execution_status: Option<ExecutionStatus>,
}

/// Conversations. Inserted by `StartTaskRepository::begin_conversation` or by [`ConversationRepository::adopt`].
#[async_trait]
pub trait ConversationRepository: Send + Sync + 'static {
    /// One conversation with its sandbox and children.
    async fn find(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Option<ConversationView>, StoreError>;
    /// Several, in the order asked for (an id asked for twice comes twice), `None` for unknown ones. A bounded number
    /// of queries, whatever the number of ids.
    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<ConversationView>>, StoreError>;
    /// A keyset page, newest first. It ends early, but not before its first conversation, before the texts of its conversations
    /// grow beyond [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES).
    async fn search(
        &self,
        scope: &Scope,
        filter: &ConversationFilter,
        page: &PageRequest,
    ) -> Result<Page<ConversationView>, StoreError>;
    /// How many conversations `search` would find in all.
    async fn count(&self, scope: &Scope, filter: &ConversationFilter) -> Result<u64, StoreError>;
    /// Applies a change by the owner; bumps `updated_at`. `None` if there is no such conversation. An empty change
    /// reads only.
    async fn update(
        &self,
        scope: &Scope,
        id: ConversationId,
        change: &ConversationChange,
        at: Timestamp,
    ) -> Result<Option<ConversationView>, StoreError>;
    /// Notes a pull request of the conversation by its number: last, and only once; bumps `updated_at` if it is new. A
    /// conversation has at most [`MAX_PULL_REQUESTS`](crate::conversation::MAX_PULL_REQUESTS); more are not noted. `false`
    /// if there is no such conversation.
    async fn add_pull_request(
        &self,
        scope: &Scope,
        id: ConversationId,
        number: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Stores a conversation that the agent server of `conversation.sandbox_id` made by itself. Writes only if the id is
    /// neither known nor deleted: `Stored{new:1}` then, else `Stored{new:0}`, `Foreign` or `Deleted`. A conversation whose
    /// start failed in this sandbox is `Deleted`, too: its agent server may have gone on with it. A sandbox that has
    /// [`MAX_CONVERSATIONS_FOR_ADOPTION`](crate::conversation::MAX_CONVERSATIONS_FOR_ADOPTION) conversations gets no more: `Unknown`.
    async fn adopt(&self, conversation: &Conversation) -> Result<AppendOutcome, StoreError>;
    /// Applies a report of sandbox `origin` about its own conversation.
    async fn apply_report(
        &self,
        origin: &SandboxId,
        id: ConversationId,
        observation: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError>;
    /// Deletes the conversation and its sub-conversations with their events and start tasks, and remembers the ids so
    /// that nothing resurrects them. In the same transaction each sandbox that no other conversation and no unfinished
    /// start task needs is marked for deletion (`DesiredState::Deleted`); for a shared one a [`PendingAgentDeletion`] entry is left.
    /// `false` if there is no such conversation. Unfinished start tasks of the conversation end in ERROR.
    async fn delete(
        &self,
        scope: &Scope,
        id: ConversationId,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Deleted conversations that agent servers still hold, oldest first, at most `limit`, in sandboxes that are
    /// RUNNING (others are told when they run again).
    async fn list_pending_agent_deletions(&self, limit: usize) -> Result<Vec<PendingAgentDeletion>, StoreError>;
    /// The agent server was told (or is gone).
    async fn complete_agent_deletion(&self, id: ConversationId) -> Result<(), StoreError>;
    /// All conversations of a sandbox, newest first, at most `limit`, for the reconciler.
    async fn list_in_sandbox(
        &self,
        sandbox: &SandboxId,
        limit: usize,
    ) -> Result<Vec<Conversation>, StoreError>;
    /// Of all sandboxes of a host that are wanted to run and do, the conversations that may change without a word to us: those
    /// whose status is not known or `running`, and those created after `untitled_since` whose title is chosen automatically.
    /// In the order of sandbox and id, at most `limit`: if so many are found, there may be more.
    async fn list_unsettled(
        &self,
        host: &HostId,
        untitled_since: Timestamp,
        limit: usize,
    ) -> Result<Vec<UnsettledConversation>, StoreError>;
    /// A sandbox stopped: conversations of it that are `running` become `to`. Returns how many.
    async fn settle_running(
        &self,
        sandbox: &SandboxId,
        to: crate::conversation::ExecutionStatus,
        at: Timestamp,
    ) -> Result<u64, StoreError>;
    /// Forgets conversations that were deleted before and whose sandbox's row is gone, oldest first, at most `limit`; how
    /// many there were. While the sandbox is there a late report could bring them back, so those stay.
    async fn prune_deleted(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
