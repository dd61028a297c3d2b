//! The ports of start tasks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::conversation::Conversation;
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::IdempotencyCheck;
use domain::error::{Entity, ReachedCap, StoreError};
use domain::id::{HostId, OwnerId, StartTaskId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, Sandbox, SandboxCaps, SandboxStatus};
use domain::start_task::{
    CLOCK_SKEW_GRACE, ClaimLimit, LeasedStartTask, MAX_UNFINISHED_STARTS, NewStartTask,
    SandboxAssignment, StartQueueCounts, StartStatus, StartTask, StartTaskFilter,
    StartTaskInsertOutcome, StartTaskOrder, StartTaskQueue, StartTaskRepository, StartTaskUpdate,
};
use domain::user::scope::Scope;

use crate::state::{MemoryState, TaskRow};
use crate::{MemoryStore, page};

const STALE: StoreError = StoreError::Stale {
    entity: Entity::StartTask,
};
const SANDBOX_NOT_FOUND: StoreError = StoreError::NotFound {
    entity: Entity::Sandbox,
};
const CONVERSATION_TAKEN: StoreError = StoreError::Conflict {
    entity: Entity::Conversation,
};

impl TaskRow {
    fn apply(&mut self, status: StartStatus, update: &StartTaskUpdate, at: Timestamp) -> StartTask {
        let task = &mut self.task;
        if task.status != status {
            task.status = status;
            task.updated_at = at;
        }
        task.detail.clone_from(&update.detail);
        task.agent_server_url = update
            .agent_server_url
            .clone()
            .or(task.agent_server_url.take());
        task.notes.clone_from(&update.notes);
        task.timings.clone_from(&update.timings);
        if status.is_terminal() {
            task.sealed_secrets = None;
            self.lease_until = None;
        }
        task.clone()
    }
}

impl MemoryState {
    /// A task whose lease the caller still holds and that may change to `to`.
    fn leased(
        &mut self,
        id: StartTaskId,
        fence: i64,
        to: StartStatus,
    ) -> Result<&mut TaskRow, StoreError> {
        self.tasks
            .get_mut(&id)
            .filter(|row| row.fence == fence && row.task.status.can_transition_to(to))
            .ok_or(STALE)
    }

    /// The task of the same owner for this conversation id, if there is one that did not fail. `Conflict` if the id is taken in
    /// another way.
    fn find_existing(&self, task: &StartTask) -> Result<Option<StartTask>, StoreError> {
        let id = task.conversation_id;
        if self.deleted.contains_key(&id) {
            return Err(CONVERSATION_TAKEN);
        }
        let unfailed = self
            .tasks
            .values()
            .map(|row| &row.task)
            .find(|it| it.conversation_id == id && it.status != StartStatus::Error);
        match unfailed {
            Some(existing) if existing.owner == task.owner => Ok(Some(existing.clone())),
            Some(_) => Err(CONVERSATION_TAKEN),
            None if self.conversations.contains_key(&id) => Err(CONVERSATION_TAKEN),
            None => Ok(None),
        }
    }

    /// Stores, resumes or checks the sandbox of a start. Returns the sandbox if it was resumed.
    fn assign_sandbox(
        &mut self,
        start: &NewStartTask,
        caps: SandboxCaps,
    ) -> Result<Option<Sandbox>, StoreError> {
        let task = &start.task;
        if let SandboxAssignment::New(sandbox) = &start.assignment {
            self.check_insert(sandbox, caps)?;
            self.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
            return Ok(None);
        }
        let sandbox = self.undeleted_sandbox(&task.sandbox_id).cloned();
        let sandbox = sandbox
            .filter(|it| it.owner == task.owner)
            .ok_or(SANDBOX_NOT_FOUND)?;
        let should_run = sandbox.desired == DesiredState::Running;
        match start.assignment {
            SandboxAssignment::Shared { .. }
                if !should_run || sandbox.status != SandboxStatus::Running =>
            {
                Err(SANDBOX_NOT_FOUND)
            }
            SandboxAssignment::Shared { max_conversations }
                if self.occupancy(&sandbox).conversations >= max_conversations =>
            {
                Err(StoreError::Full {
                    entity: "conversations in that sandbox",
                    limit: max_conversations as usize,
                })
            }
            SandboxAssignment::Shared { .. } => Ok(None),
            _ if should_run && sandbox.status.is_up() => Ok(None),
            _ => self.resume(sandbox, caps, task.created_at).map(Some),
        }
    }

    fn fail(
        &mut self,
        id: StartTaskId,
        fence: i64,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let row = self.leased(id, fence, StartStatus::Error)?;
        let task = row.apply(StartStatus::Error, update, at);
        if row.begun {
            self.conversations.remove(&task.conversation_id);
            self.events.remove(&task.conversation_id);
        }
        let should_run = |it: &Sandbox| it.desired == DesiredState::Running;
        let owns_running_sandbox = task.owns_sandbox
            && self
                .undeleted_sandbox(&task.sandbox_id)
                .is_some_and(should_run);
        let since = task.created_at.minus(CLOCK_SKEW_GRACE);
        let mut deletions = self.deleted.values();
        let has_deletion = deletions.any(|it| it.sandbox == task.sandbox_id && it.at >= since);
        if owns_running_sandbox || has_deletion {
            self.delete_unless_needed(&task.sandbox_id, at);
        }
        Ok(task)
    }

    fn matching_tasks<'a>(
        &'a self,
        scope: &'a Scope,
        filter: &'a StartTaskFilter,
    ) -> impl Iterator<Item = &'a StartTask> {
        self.tasks.values().map(|row| &row.task).filter(move |it| {
            scope.sees(&it.owner)
                && filter.created_from.is_none_or(|from| it.created_at >= from)
                && filter
                    .conversation_id
                    .is_none_or(|id| it.conversation_id == id && it.status == StartStatus::Ready)
        })
    }
}

impl MemoryStore {
    fn publish_failed_start(&self, task: &StartTask) {
        self.publish(StoreChange::StartTask(task.id));
        self.publish(StoreChange::Sandbox {
            id: task.sandbox_id.clone(),
            host: task.host.clone(),
            is_wanted: false,
        });
    }
}

#[async_trait]
impl StartTaskRepository for MemoryStore {
    async fn insert(
        &self,
        start: &NewStartTask,
        caps: &SandboxCaps,
    ) -> Result<StartTaskInsertOutcome, StoreError> {
        let mut state = self.lock();
        let task = &start.task;
        if let Some(response) = &start.response {
            match state.check_idempotency(&response.request) {
                IdempotencyCheck::New => {}
                known => return Ok(StartTaskInsertOutcome::KeyUsed(known)),
            }
        }
        if let Some(existing) = state.find_existing(task)? {
            return Ok(StartTaskInsertOutcome::Existing(existing));
        }
        let unfinished = state.tasks.values().map(|row| &row.task);
        let unfinished = unfinished.filter(|it| it.owner == task.owner && !it.status.is_terminal());
        if unfinished.count() >= MAX_UNFINISHED_STARTS as usize {
            return Err(StoreError::CapReached(ReachedCap::Starts(
                MAX_UNFINISHED_STARTS,
            )));
        }
        if let Some(parent) = task.request.parent_conversation_id {
            let parent = state.conversations.get(&parent);
            if parent.is_none_or(|row| row.conversation.owner != task.owner) {
                return Err(StoreError::NotFound {
                    entity: Entity::ParentConversation,
                });
            }
        }
        if state.tasks.contains_key(&task.id) {
            return Err(StoreError::Conflict {
                entity: Entity::StartTask,
            });
        }
        if let Some(resumed) = state.assign_sandbox(start, *caps)? {
            self.publish_sandbox(&resumed);
        }
        let row = TaskRow {
            task: task.clone(),
            fence: 0,
            lease_until: None,
            begun: false,
        };
        state.tasks.insert(task.id, row);
        if let Some(response) = &start.response {
            state.store_response(response);
        }
        self.publish(StoreChange::StartTaskQueued(task.host.clone()));
        Ok(StartTaskInsertOutcome::New)
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, StoreError> {
        let state = self.lock();
        let find = |id: &StartTaskId| {
            let task = &state.tasks.get(id)?.task;
            scope.sees(&task.owner).then(|| task.clone())
        };
        Ok(ids.iter().map(find).collect())
    }

    async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, StoreError> {
        use StartTaskOrder::{CreatedAt, CreatedAtDesc, UpdatedAt, UpdatedAtDesc};
        let state = self.lock();
        let rows = state.matching_tasks(scope, filter).map(|it| {
            let time = match order {
                CreatedAt | CreatedAtDesc => it.created_at,
                UpdatedAt | UpdatedAtDesc => it.updated_at,
            };
            ((time.micros(), it.id.to_string()), it.clone())
        });
        let descending = matches!(order, CreatedAtDesc | UpdatedAtDesc);
        page::page_by_bytes(
            &format!("start-tasks {order:?}"),
            page,
            descending,
            rows,
            |task: &StartTask| serde_json::to_string(&task.request).map_or(0, |text| text.len()),
        )
    }

    async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, StoreError> {
        let count = self.lock().matching_tasks(scope, filter).count();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

#[async_trait]
impl StartTaskQueue for MemoryStore {
    async fn claim(
        &self,
        host: &HostId,
        now: Timestamp,
        until: Timestamp,
        limit: ClaimLimit,
    ) -> Result<Vec<LeasedStartTask>, StoreError> {
        let mut state = self.lock();
        let mut leased: BTreeMap<OwnerId, usize> = BTreeMap::new();
        let rows = state.tasks.values();
        for row in rows.filter(|row| row.task.host == *host && !row.task.status.is_terminal()) {
            if row.lease_until.is_some_and(|end| end > now) {
                *leased.entry(row.task.owner.clone()).or_default() += 1;
            }
        }
        let mut free: Vec<&mut TaskRow> = state
            .tasks
            .values_mut()
            .filter(|row| row.task.host == *host && !row.task.status.is_terminal())
            .filter(|row| row.lease_until.is_none_or(|end| end <= now))
            .collect();
        let age = |row: &TaskRow| (row.task.created_at, row.task.id);
        free.sort_by_key(|row| age(row));
        let mut ranked: Vec<_> = free
            .into_iter()
            .map(|row| {
                let rank = leased.entry(row.task.owner.clone()).or_default();
                *rank += 1;
                (*rank, row)
            })
            .filter(|(rank, _)| *rank <= limit.per_owner)
            .collect();
        ranked.sort_by_key(|(rank, row)| (*rank, age(row)));
        ranked.truncate(limit.tasks);
        ranked.sort_by_key(|(_, row)| age(row));
        Ok(ranked
            .into_iter()
            .map(|(_, row)| {
                row.lease_until = Some(until);
                row.fence += 1;
                row.task.attempts += 1;
                LeasedStartTask {
                    task: row.task.clone(),
                    fence: row.fence,
                }
            })
            .collect())
    }

    async fn renew(&self, id: StartTaskId, fence: i64, until: Timestamp) -> Result<(), StoreError> {
        let mut state = self.lock();
        let row = state.leased(id, fence, StartStatus::Error)?;
        row.lease_until = Some(until);
        Ok(())
    }

    async fn release(&self, id: StartTaskId, fence: i64) -> Result<(), StoreError> {
        let mut state = self.lock();
        let row = state.leased(id, fence, StartStatus::Error)?;
        row.lease_until = None;
        row.fence += 1;
        self.publish(StoreChange::StartTaskQueued(row.task.host.clone()));
        Ok(())
    }

    async fn advance(
        &self,
        id: StartTaskId,
        fence: i64,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let mut state = self.lock();
        if update.status == StartStatus::Error {
            let failed = state.fail(id, fence, update, at);
            return failed.inspect(|task| self.publish_failed_start(task));
        }
        let row = state.leased(id, fence, update.status)?;
        let task = row.apply(update.status, update, at);
        self.publish(StoreChange::StartTask(id));
        Ok(task)
    }

    async fn begin_conversation(
        &self,
        id: StartTaskId,
        fence: i64,
        conversation: &Conversation,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let mut state = self.lock();
        let begun = state.leased(id, fence, update.status)?.begun;
        let should_run = |it: &Sandbox| it.desired == DesiredState::Running;
        if !state
            .undeleted_sandbox(&conversation.sandbox_id)
            .is_some_and(should_run)
        {
            return Err(SANDBOX_NOT_FOUND);
        }
        if !begun {
            let parent = conversation.parent;
            if parent.is_some_and(|it| !state.conversations.contains_key(&it)) {
                return Err(StoreError::NotFound {
                    entity: Entity::ParentConversation,
                });
            }
            let is_stored = state.conversations.contains_key(&conversation.id);
            if is_stored || state.deleted.contains_key(&conversation.id) {
                return Err(CONVERSATION_TAKEN);
            }
            state.insert_conversation(conversation);
        }
        self.publish(StoreChange::StartTask(id));
        let row = state.leased(id, fence, update.status)?;
        row.begun = true;
        Ok(row.apply(update.status, update, at))
    }

    async fn fail(
        &self,
        id: StartTaskId,
        fence: i64,
        update: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let failed = self.lock().fail(id, fence, update, at);
        failed.inspect(|task| self.publish_failed_start(task))
    }

    async fn release_host(&self, host: &HostId) -> Result<u64, StoreError> {
        let mut released = 0;
        for row in self.lock().tasks.values_mut() {
            if row.task.host == *host && row.lease_until.take().is_some() {
                // A former worker may still be active; its writes with the old fence are refused.
                row.fence += 1;
                released += 1;
            }
        }
        Ok(released)
    }

    async fn count_unfinished(
        &self,
        host: &HostId,
        now: Timestamp,
    ) -> Result<StartQueueCounts, StoreError> {
        let mut queue = StartQueueCounts::default();
        for row in self.lock().tasks.values() {
            if row.task.host != *host || row.task.status.is_terminal() {
                continue;
            }
            match row.lease_until {
                Some(until) if until > now => queue.leased += 1,
                _ => queue.waiting += 1,
            }
        }
        Ok(queue)
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let mut old: Vec<_> = state
            .tasks
            .values()
            .map(|row| &row.task)
            .filter(|it| it.status.is_terminal() && it.updated_at < before)
            .filter(|it| {
                it.status != StartStatus::Error || !state.sandboxes.contains_key(&it.sandbox_id)
            })
            .map(|it| (it.updated_at, it.id))
            .collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, id) in &old {
            state.tasks.remove(id);
        }
        state.delete_orphaned_messages();
        Ok(old.len() as u64)
    }
}
