//! The port of start tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{StartStatus, StartTask};
use crate::clock::Timestamp;
use crate::conversation::Conversation;
use crate::coordination::idempotency::{IdempotencyCheck, IdempotentResponse};
use crate::error::StoreError;
use crate::id::{ConversationId, HostId, StartTaskId};
use crate::page::{Page, PageRequest};
use crate::sandbox::{Sandbox, SandboxCaps};
use crate::user::scope::Scope;
use crate::wire_enum::wire_enum;

/// Maximum number of unfinished start tasks of one user. The caps on sandboxes do not bound starts in a named sandbox.
pub const MAX_UNFINISHED_STARTS: u32 = 100;

/// The sandbox of a start.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, one per start")]
pub enum SandboxAssignment {
    New(Sandbox),
    /// The sandbox that the task names, chosen by its owner. It is resumed if it is not up.
    Named,
    /// The sandbox that the task names, chosen by the service. It must be RUNNING and desired to run (else `NotFound`),
    /// and have fewer than `max_conversations` (else `Full`).
    Shared {
        /// Maximum number of conversations in it, including those that are being started.
        max_conversations: u32,
    },
}

/// A start task to commit, with its sandbox.
#[derive(Debug, Clone)]
pub struct NewStartTask {
    /// The task, in WORKING.
    pub task: StartTask,
    pub assignment: SandboxAssignment,
    /// The response to store, if the request has an idempotency key.
    pub response: Option<IdempotentResponse>,
}

/// The result of inserting a start task.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, one per start")]
pub enum StartTaskInsertOutcome {
    New,
    /// The owner has a task for this conversation id that did not fail. Nothing was written.
    Existing(StartTask),
    /// The request's key was used before, for this or another request. Nothing was written. Never
    /// [`IdempotencyCheck::New`].
    KeyUsed(IdempotencyCheck),
}

/// A start task under a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedStartTask {
    pub task: StartTask,
    /// Fencing token: grows with every claim. Writes with an older token are `Stale`.
    pub fence: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StartTaskUpdate {
    pub status: StartStatus,
    /// Why it failed, its progress, or the joined notes; `None` clears the stored detail.
    pub detail: Option<String>,
    /// All notes so far; they replace the stored ones.
    pub notes: Vec<String>,
    /// Address of the agent server; `None` keeps the stored one.
    pub agent_server_url: Option<String>,
    /// All timings so far; they replace the stored ones.
    pub timings: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartTaskFilter {
    /// Only READY tasks of this conversation (clients learn the id only then).
    pub conversation_id: Option<ConversationId>,
    /// `created_at` at or after.
    pub created_from: Option<Timestamp>,
}

/// Maximum difference between the clocks of two replicas. It is added where one replica compares its own time with a
/// time that another wrote.
pub const CLOCK_SKEW_GRACE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimit {
    /// Maximum number of tasks of one call.
    pub tasks: usize,
    /// Maximum number of leased tasks of one owner on the host, including those of this call.
    pub per_owner: usize,
}

impl ClaimLimit {
    /// Limits the number of tasks, without a limit for each owner.
    pub fn tasks(tasks: usize) -> Self {
        Self {
            tasks,
            per_owner: usize::MAX,
        }
    }
}

wire_enum! {
    /// Sort order; ties are broken by id.
    #[derive(Default)]
    StartTaskOrder {
        /// Oldest first.
        CreatedAt = "CREATED_AT",
        /// Newest first.
        #[default]
        CreatedAtDesc = "CREATED_AT_DESC",
        /// Longest unchanged first.
        UpdatedAt = "UPDATED_AT",
        /// Last changed first.
        UpdatedAtDesc = "UPDATED_AT_DESC",
    }
}

/// The number of unfinished tasks of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartQueueCounts {
    pub leased: u64,
    /// Tasks without a lease, or with an expired one.
    pub waiting: u64,
}

/// Start tasks: their commit, and how their owners see them.
#[async_trait]
pub trait StartTaskRepository: Send + Sync + 'static {
    /// Commits a task, its sandbox and the response in one transaction.
    /// * The idempotency key is checked first: if it was used before, nothing else is checked (`KeyUsed`).
    /// * The caps apply if a sandbox is created or resumed (`CapReached`).
    /// * An owner may have [`MAX_UNFINISHED_STARTS`] unfinished tasks (`CapReached`).
    /// * The parent must be a conversation of the owner (`NotFound` of `Entity::ParentConversation`).
    /// * A named sandbox must exist (`NotFound`).
    /// * A conversation id has at most one task that did not fail: the same owner gets `Existing`. `Conflict` if the id
    ///   is that of another owner's conversation, of a conversation without a task, or of a deleted one.
    async fn insert(
        &self,
        start: &NewStartTask,
        caps: &SandboxCaps,
    ) -> Result<StartTaskInsertOutcome, StoreError>;
    /// Several tasks, in the order of `ids`; `None` for unknown ones.
    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, StoreError>;
    /// A keyset page. It ends before its stored rows exceed [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES), but holds
    /// at least one task if one matches.
    async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, StoreError>;
    /// Total number of tasks that `search` finds.
    async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, StoreError>;
}

/// Start tasks for the workers of a host. `advance`, `begin_conversation`, `renew`, `release` and `fail` return `Stale`
/// if the lease was lost (the fence differs), the transition is illegal, or the task is gone.
#[async_trait]
pub trait StartTaskQueue: Send + Sync + 'static {
    /// Leases up to `limit.tasks` unfinished tasks of `host` without a valid lease at `now`, until `until`. It takes
    /// the oldest task of the owner with the fewest leased tasks of this host, one after the other, so that no owner
    /// delays others. An owner with `limit.per_owner` leased tasks gets no more. Of several concurrent callers, exactly
    /// one gets a task. The result is ordered by age.
    async fn claim(
        &self,
        host: &HostId,
        now: Timestamp,
        until: Timestamp,
        limit: ClaimLimit,
    ) -> Result<Vec<LeasedStartTask>, StoreError>;
    async fn renew(&self, id: StartTaskId, fence: i64, until: Timestamp) -> Result<(), StoreError>;
    /// Ends a lease: a worker of the host may claim the task at once, and writes with this fence are refused from then
    /// on.
    async fn release(&self, id: StartTaskId, fence: i64) -> Result<(), StoreError>;
    /// Stores an update. READY also erases the sealed secrets and ends the lease.
    async fn advance(
        &self,
        id: StartTaskId,
        fence: i64,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Stores the conversation (unless this task has stored it) and the update, in one transaction. `NotFound` if the
    /// sandbox row is gone or not desired to run. `NotFound` of `Entity::ParentConversation` if the parent is gone.
    /// `Conflict` if another conversation has the id.
    async fn begin_conversation(
        &self,
        id: StartTaskId,
        fence: i64,
        conversation: &Conversation,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Ends the task in ERROR (`update.status` is ERROR) and releases what it holds, in one transaction: its conversation
    /// row (without a record of a deletion), its sealed secrets, its lease, and its sandbox.
    ///
    /// The sandbox becomes `DesiredState::Deleted` if no other conversation or unfinished task needs it, and one of
    /// these holds:
    /// * The task owns it and it is desired to run. A sandbox that its owner paused stays.
    /// * A conversation in it was deleted since the task was created. That deletion left the sandbox because of this
    ///   task.
    async fn fail(
        &self,
        id: StartTaskId,
        fence: i64,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Ends all leases on tasks of this host. For the start-up, when the lock of the data directory excludes other
    /// workers. Returns the number of leases.
    async fn release_host(&self, host: &HostId) -> Result<u64, StoreError>;
    /// Number of unfinished tasks of this host at `now`.
    async fn count_unfinished(
        &self,
        host: &HostId,
        now: Timestamp,
    ) -> Result<StartQueueCounts, StoreError>;
    /// Deletes at most `limit` ended tasks that last changed before `before`, longest unchanged first; returns how
    /// many. A failed task stays while its sandbox's row exists, because it keeps late reports from recreating its
    /// conversation.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
