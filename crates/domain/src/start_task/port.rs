//! The start-task repository.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{StartStatus, StartTask};
use crate::clock::Timestamp;
use crate::conversation::Conversation;
use crate::error::StoreError;
use crate::id::{ConversationId, HostId, StartTaskId};
use crate::idempotency::{IdempotentResponse, IdempotencyCheck};
use crate::page::{Page, PageRequest};
use crate::sandbox::{SandboxCaps, Sandbox};
use crate::scope::Scope;

/// Unfinished start tasks that one user may have: starts in a named sandbox need no room under the caps on sandboxes,
/// and the queue must end somewhere.
pub const MAX_UNFINISHED_STARTS: u32 = 100;

/// The entity of a `NotFound` that means the conversation which a new one is part of.
pub const PARENT_CONVERSATION_ENTITY: &str = "parent conversation";

/// Where a start runs.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, one per start")]
pub enum SandboxAssignment {
    /// In a new sandbox: this row (STARTING).
    New(Sandbox),
    /// In the one that the task names, which its owner chose. If it is not up it is resumed.
    Named,
    /// In the one that the task names, which we chose: only while it is RUNNING and wanted to run (`NotFound`), and fewer
    /// conversations than so many are in it or being started there (`Full`).
    Shared {
        /// So many.
        max_conversations: u32,
    },
}

/// A task to be committed, with the sandbox that is reserved for it.
#[derive(Debug, Clone)]
pub struct NewStartTask {
    /// The task, in WORKING.
    pub task: StartTask,
    /// Where it runs.
    pub assignment: SandboxAssignment,
    /// The answer, when the request has a key of its sender's.
    pub answer: Option<IdempotentResponse>,
}

/// What became of a new task.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, one per start")]
pub enum StartTaskInsertOutcome {
    /// Committed.
    New,
    /// The same owner already has an unfailed task for this conversation id: here it is; nothing was written.
    Existing(StartTask),
    /// The request's key was used before: with this answer, or for another request. Nothing was written. Never
    /// [`IdempotencyCheck::New`].
    Repeated(IdempotencyCheck),
}

/// A leased task.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedStartTask {
    /// The task as stored.
    pub task: StartTask,
    /// Fencing token: grows with every claim. Writes with an older one are `Stale`.
    pub fence: i64,
}

/// A step forward.
#[derive(Debug, Clone, PartialEq)]
pub struct StartTaskUpdate {
    /// The new status (or the same again).
    pub status: StartStatus,
    /// Why it failed, how far it is, or the joined notes; `None` takes away what is stored.
    pub detail: Option<String>,
    /// Notes so far (replace the stored ones).
    pub notes: Vec<String>,
    /// Where the agent server is; `None` leaves what is stored.
    pub agent_server_url: Option<String>,
    /// Timings so far (replace the stored ones).
    pub timings: BTreeMap<String, u64>,
}

/// Filter of search and count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartTaskFilter {
    /// Only READY tasks of this conversation (clients learn the id only then).
    pub conversation_id: Option<ConversationId>,
    /// `created_at` at or after.
    pub created_from: Option<Timestamp>,
}

/// How far the clocks of two replicas may be apart where one has written what the other compares with its own time.
pub const CLOCK_SKEW_GRACE: Duration = Duration::from_secs(60);

/// How much is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimit {
    /// Tasks of one call.
    pub tasks: usize,
    /// Tasks that one owner may have leased on the host, those of this call among them.
    pub per_owner: usize,
}

impl ClaimLimit {
    /// So many tasks, of whomever.
    pub fn tasks(tasks: usize) -> Self {
        Self {
            tasks,
            per_owner: usize::MAX,
        }
    }
}

/// Order of a search; ties are broken by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartTaskOrder {
    /// Oldest first.
    CreatedAt,
    /// Newest first.
    #[default]
    CreatedAtDesc,
    /// Longest unchanged first.
    UpdatedAt,
    /// Last changed first.
    UpdatedAtDesc,
}

/// Unfinished tasks of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartQueueCounts {
    /// Under a lease: somebody works on them.
    pub leased: u64,
    /// Under none, or one that has run out.
    pub waiting: u64,
}

/// Start tasks. `advance`, `begin_conversation`, `renew`, `release` and `fail` answer `Stale` when the lease was lost (another
/// fence), the transition is illegal, or the task is gone.
#[async_trait]
pub trait StartTaskRepository: Send + Sync + 'static {
    /// Commits a task, its sandbox and the answer in one transaction. A key that was used before comes first: then nothing
    /// else is looked at (`Repeated`). The caps apply when a sandbox is made or resumed (`CapReached`). With a parent that
    /// its owner does not have (any more): `NotFound` of [`PARENT_CONVERSATION_ENTITY`].
    /// At most one unfailed task per conversation id: the same owner gets `Existing`; a conversation of somebody else
    /// with this id, a conversation without a task, or a deleted one is `Conflict`. A named sandbox that was deleted meanwhile is `NotFound`.
    /// More than [`MAX_UNFINISHED_STARTS`] unfinished tasks of one owner are refused (`CapReached`).
    async fn insert(&self, start: &NewStartTask, caps: &SandboxCaps) -> Result<StartTaskInsertOutcome, StoreError>;
    /// Several, in the order asked for.
    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, StoreError>;
    /// A keyset page. It holds at least one task if there is one, and ends early before what is stored of them grows beyond
    /// [`MAX_PAGE_BYTES`](crate::page::MAX_PAGE_BYTES).
    async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, StoreError>;
    /// How many tasks `search` would find in all.
    async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, StoreError>;
    /// Leases up to `limit.tasks` unfinished tasks of `host` that nobody holds (no lease, or past its end at `now`), until
    /// `until`: each time the oldest of the owners with the fewest leased tasks of this host, so that nobody's queue holds
    /// up others. An owner who has `limit.per_owner` leased gets no more. Exactly one of several concurrent callers gets a
    /// task. The answer is ordered by age.
    async fn claim(
        &self,
        host: &HostId,
        now: Timestamp,
        until: Timestamp,
        limit: ClaimLimit,
    ) -> Result<Vec<LeasedStartTask>, StoreError>;
    /// Prolongs a lease.
    async fn renew(&self, id: StartTaskId, fence: i64, until: Timestamp) -> Result<(), StoreError>;
    /// Gives a lease back: whoever serves the host may claim the task at once, and nobody writes with this fence again.
    async fn release(&self, id: StartTaskId, fence: i64) -> Result<(), StoreError>;
    /// Stores a step. READY also erases the sealed secrets and ends the lease.
    async fn advance(
        &self,
        id: StartTaskId,
        fence: i64,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Stores the conversation (unless this task has stored it before) and the step, in one transaction. `NotFound` if
    /// the sandbox row is gone or not wanted to run, or, of [`PARENT_CONVERSATION_ENTITY`], if the conversation's parent is; `Conflict` if the id is taken by another.
    async fn begin_conversation(
        &self,
        id: StartTaskId,
        fence: i64,
        conversation: &Conversation,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Ends the task in ERROR (`step.status` is ERROR), in one transaction with releasing what it held: its
    /// conversation row if it had begun one (without remembering it as deleted), its sealed secrets, its lease, and its
    /// sandbox (`DesiredState::Deleted`) if no other conversation or unfinished task needs it, and either it owns it and it is
    /// wanted to run (one that its owner paused stays), or a conversation in it was deleted since the task was made (the
    /// sandbox would have gone with that one, had it not been for this task).
    async fn fail(
        &self,
        id: StartTaskId,
        fence: i64,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError>;
    /// Ends all leases on tasks of this host: for start-up, when no other worker can serve it (the data directory is
    /// locked). Returns how many.
    async fn release_host(&self, host: &HostId) -> Result<u64, StoreError>;
    /// How many unfinished tasks this host has at `now`.
    async fn count_unfinished(&self, host: &HostId, now: Timestamp) -> Result<StartQueueCounts, StoreError>;
    /// Deletes ended tasks that last changed before, longest unchanged first, at most `limit`; how many there were. A
    /// failed one stays while its sandbox's row is there: it keeps late reports from bringing its conversation back.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
