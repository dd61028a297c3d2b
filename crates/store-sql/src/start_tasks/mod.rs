//! The ports of start tasks.

mod insertion;
mod leasing;
pub(crate) mod rows;

use async_trait::async_trait;
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::Conversation;
use domain::coordination::change::StoreChange;
use domain::error::{Entity, StoreError};
use domain::id::{HostId, StartTaskId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, Sandbox, SandboxCaps};
use domain::start_task::{
    CLOCK_SKEW_GRACE, ClaimLimit, LeasedStartTask, NewStartTask, StartQueueCounts, StartStatus,
    StartTask, StartTaskFilter, StartTaskInsertOutcome, StartTaskOrder, StartTaskQueue,
    StartTaskRepository, StartTaskUpdate,
};
use domain::user::scope::Scope;
use uuid::Uuid;

use self::insertion::insert;
use self::leasing::claim;
use self::rows::{ENTITY, StartTaskRow, StepColumns, stored_bytes};
use crate::conversations::deletion::{DELETION_BATCH_ROWS, has_deletion_since, unneeded_sandboxes};
use crate::conversations::pending_messages::delete_orphans;
use crate::conversations::rows as conversations;
use crate::database::changes::announce;
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, not_found, stale};
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::sandboxes::{load_undeleted, mark_deleted};
use crate::schema::codec::{find_in_order, owner_filter, row_limit};
use crate::schema::column_types::{TimestampCol, UuidCol};
use crate::schema::{sandboxes, start_tasks};
use crate::store::SqlStore;

type BoxedStartTaskQuery<'a> = start_tasks::BoxedQuery<'a, AnyBackend>;

fn load(
    conn: &mut AnyConnection,
    id: StartTaskId,
) -> Result<Option<StartTaskRow>, TransactionError> {
    start_tasks::table
        .find(UuidCol::from(id))
        .select(StartTaskRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(ENTITY)
}

/// Loads a task and its status. `Stale` unless the caller still holds the lease and the status may change to `to`.
fn load_leased(
    conn: &mut AnyConnection,
    id: StartTaskId,
    fence: i64,
    to: StartStatus,
) -> Result<(StartTaskRow, StartStatus), TransactionError> {
    let row = load(conn, id)?
        .filter(|row| row.fence == fence)
        .ok_or_else(|| stale(ENTITY))?;
    let status = row.status.0;
    if status.can_transition_to(to) {
        Ok((row, status))
    } else {
        Err(stale(ENTITY))
    }
}

/// Stores a step and announces it.
fn write_step(
    conn: &mut AnyConnection,
    id: StartTaskId,
    step: &StepColumns,
) -> Result<StartTask, TransactionError> {
    diesel::update(start_tasks::table.find(UuidCol::from(id)))
        .set(step)
        .execute(conn)?;
    announce(conn, &StoreChange::StartTask(id))?;
    let row = load(conn, id)?.ok_or_else(|| stale(ENTITY))?;
    Ok(row.into())
}

/// Ends the task in ERROR, and deletes its unfinished conversation and a sandbox that nothing else uses.
fn fail(
    conn: &mut AnyConnection,
    id: StartTaskId,
    fence: i64,
    step: &StartTaskUpdate,
    at: Timestamp,
) -> Result<StartTask, TransactionError> {
    let (row, before) = load_leased(conn, id, fence, StartStatus::Error)?;
    let columns = StepColumns::new(before, StartStatus::Error, step, at);
    let task = write_step(conn, id, &columns)?;
    if row.begun {
        use crate::schema::conversations::table;
        diesel::delete(table.find(UuidCol::from(task.conversation_id))).execute(conn)?;
    }
    let should_run = |sandbox: Sandbox| sandbox.desired == DesiredState::Running;
    let owns_running_sandbox =
        task.owns_sandbox && load_undeleted(conn, &task.sandbox_id)?.is_some_and(should_run);
    let since = task.created_at.minus(CLOCK_SKEW_GRACE);
    if owns_running_sandbox || has_deletion_since(conn, task.sandbox_id.as_str(), since)? {
        // The task itself has ended above, so it does not count as a user of the sandbox.
        let unneeded = unneeded_sandboxes(conn, &[task.sandbox_id.to_string()])?;
        mark_deleted(conn, &unneeded, at)?;
    }
    Ok(task)
}

fn matching<'a>(scope: &Scope, filter: &StartTaskFilter) -> BoxedStartTaskQuery<'a> {
    let mut query = start_tasks::table.into_boxed::<AnyBackend>();
    filter_by! {
        query,
        owner_filter(scope) => |user| start_tasks::owner.eq(user);
        filter.conversation_id => |id| start_tasks::conversation_id.eq(UuidCol::from(id));
        filter.conversation_id => |_id| start_tasks::status.eq(StartStatus::Ready.as_str());
        filter.created_from => |from| start_tasks::created_at.ge(TimestampCol(from));
    }
    query
}

/// Applies the order and the cursor.
fn ordered(
    query: BoxedStartTaskQuery<'_>,
    order: StartTaskOrder,
    after: Option<Cursor<Uuid>>,
) -> BoxedStartTaskQuery<'_> {
    let after = after.map(|(at, id)| (at, UuidCol(id)));
    let (created, updated, id) = (
        start_tasks::created_at,
        start_tasks::updated_at,
        start_tasks::id,
    );
    match order {
        StartTaskOrder::CreatedAt => keyset!(asc, query, created, id, after),
        StartTaskOrder::CreatedAtDesc => keyset!(desc, query, created, id, after),
        StartTaskOrder::UpdatedAt => keyset!(asc, query, updated, id, after),
        StartTaskOrder::UpdatedAtDesc => keyset!(desc, query, updated, id, after),
    }
}

#[async_trait]
impl StartTaskRepository for SqlStore {
    async fn insert(
        &self,
        start: &NewStartTask,
        caps: &SandboxCaps,
    ) -> Result<StartTaskInsertOutcome, StoreError> {
        let jobs = self.db.for_owner(&start.task.owner);
        let (start, caps) = (start.clone(), *caps);
        jobs.run(JobMode::Write, move |conn| insert(conn, &start, caps))
            .await
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, ids) = (scope.clone(), ids.to_vec());
        jobs.run(JobMode::ReadDocuments, move |conn| {
            find_in_order(
                &ids,
                |task: &StartTask| task.id,
                |batch| {
                    let rows = matching(&scope, &StartTaskFilter::default())
                        .filter(start_tasks::id.eq_any(batch.iter().copied().map(UuidCol::from)))
                        .select(StartTaskRow::as_select())
                        .load(conn)
                        .map_decode_error(ENTITY)?;
                    Ok(rows.into_iter().map(StartTask::from).collect())
                },
            )
        })
        .await
    }

    async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let listing = match order {
            StartTaskOrder::CreatedAt => "start-tasks+created",
            StartTaskOrder::CreatedAtDesc => "start-tasks-created",
            StartTaskOrder::UpdatedAt => "start-tasks+updated",
            StartTaskOrder::UpdatedAtDesc => "start-tasks-updated",
        };
        let by_update = matches!(
            order,
            StartTaskOrder::UpdatedAt | StartTaskOrder::UpdatedAtDesc
        );
        let after = page_token::decode(listing, page)?;
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        jobs.run(JobMode::ReadDocuments, move |conn| {
            // Load only positions and sizes first, to keep requests beyond the page limit out of memory.
            let (id, bytes) = (start_tasks::id, stored_bytes(conn));
            let (created, updated) = (start_tasks::created_at, start_tasks::updated_at);
            let positions: Vec<(UuidCol, TimestampCol, TimestampCol, i64)> =
                ordered(matching(&scope, &filter), order, after)
                    .limit(page_token::rows_to_load(&page))
                    .select((id, created, updated, bytes))
                    .load(conn)?;
            let page = page_token::limit_by_bytes(&page, positions.iter().map(|it| it.3));
            let page = page_token::build_page(listing, &page, positions, |it| {
                (if by_update { it.2 } else { it.1 }, it.0.0)
            });
            // The transaction has one snapshot, so this selects the same rows.
            let rows: Vec<StartTaskRow> = ordered(matching(&scope, &filter), order, after)
                .limit(row_limit(page.items.len()))
                .select(StartTaskRow::as_select())
                .load(conn)
                .map_decode_error(ENTITY)?;
            Ok(Page {
                items: rows.into_iter().map(StartTask::from).collect(),
                next: page.next,
            })
        })
        .await
    }

    async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, filter) = (scope.clone(), filter.clone());
        jobs.run(JobMode::Scan, move |conn| {
            let count: i64 = matching(&scope, &filter).count().get_result(conn)?;
            Ok(u64::try_from(count).unwrap_or_default())
        })
        .await
    }
}

#[async_trait]
impl StartTaskQueue for SqlStore {
    async fn claim(
        &self,
        host: &HostId,
        now: Timestamp,
        until: Timestamp,
        limit: ClaimLimit,
    ) -> Result<Vec<LeasedStartTask>, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            claim(conn, &host, (now, until), limit)
        })
        .await
    }

    async fn renew(&self, id: StartTaskId, fence: i64, until: Timestamp) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let renewed = diesel::update(
                start_tasks::table
                    .find(UuidCol::from(id))
                    .filter(start_tasks::fence.eq(fence))
                    .filter(start_tasks::is_open),
            )
            .set(start_tasks::lease_until.eq(TimestampCol(until)))
            .execute(conn)?;
            if renewed == 0 {
                return Err(stale(ENTITY));
            }
            Ok(())
        })
        .await
    }

    async fn release(&self, id: StartTaskId, fence: i64) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let (row, _) = load_leased(conn, id, fence, StartStatus::Error)?;
            diesel::update(start_tasks::table.find(UuidCol::from(id)))
                .set((
                    start_tasks::lease_until.eq(None::<TimestampCol>),
                    start_tasks::fence.eq(start_tasks::fence + 1),
                ))
                .execute(conn)?;
            let host = StartTask::from(row).host;
            announce(conn, &StoreChange::StartTaskQueued(host))
        })
        .await
    }

    async fn advance(
        &self,
        id: StartTaskId,
        fence: i64,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let step = step.clone();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            // Only `fail` may set ERROR, because it also releases what the task holds.
            if step.status == StartStatus::Error {
                return fail(conn, id, fence, &step, at);
            }
            let (_, before) = load_leased(conn, id, fence, step.status)?;
            write_step(conn, id, &StepColumns::new(before, step.status, &step, at))
        })
        .await
    }

    async fn begin_conversation(
        &self,
        id: StartTaskId,
        fence: i64,
        conversation: &Conversation,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let (conversation, step) = (conversation.clone(), step.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let (row, before) = load_leased(conn, id, fence, step.status)?;
            load_undeleted(conn, &conversation.sandbox_id)?
                .filter(|sandbox| sandbox.desired == DesiredState::Running)
                .ok_or_else(|| not_found(Entity::Sandbox))?;
            if !row.begun {
                if conversations::is_deleted(conn, conversation.id)? {
                    return Err(conflict(Entity::Conversation));
                }
                if let Some(parent) = conversation.parent {
                    conversations::load(conn, parent)?
                        .ok_or_else(|| not_found(Entity::ParentConversation))?;
                }
                conversations::insert(conn, &conversation)?;
                diesel::update(start_tasks::table.find(UuidCol::from(id)))
                    .set(start_tasks::begun.eq(true))
                    .execute(conn)?;
            }
            write_step(conn, id, &StepColumns::new(before, step.status, &step, at))
        })
        .await
    }

    async fn fail(
        &self,
        id: StartTaskId,
        fence: i64,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<StartTask, StoreError> {
        let step = step.clone();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            fail(conn, id, fence, &step, at)
        })
        .await
    }

    async fn release_host(&self, host: &HostId) -> Result<u64, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let released = diesel::update(
                start_tasks::table
                    .filter(start_tasks::host.eq(&host))
                    .filter(start_tasks::is_open)
                    .filter(start_tasks::lease_until.is_not_null()),
            )
            .set((
                start_tasks::lease_until.eq(None::<TimestampCol>),
                // An earlier worker may still write. Its fence is now outdated, so its writes fail.
                start_tasks::fence.eq(start_tasks::fence + 1),
            ))
            .execute(conn)?;
            Ok(u64::try_from(released).unwrap_or(u64::MAX))
        })
        .await
    }

    async fn count_unfinished(
        &self,
        host: &HostId,
        now: Timestamp,
    ) -> Result<StartQueueCounts, StoreError> {
        let host = host.to_string();
        // Runs every few seconds, so it must neither wait for writers nor cause serialization failures.
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let unfinished = || {
                start_tasks::table
                    .filter(start_tasks::host.eq(&host))
                    .filter(start_tasks::is_open)
            };
            let all: i64 = unfinished().count().get_result(conn)?;
            let leased = unfinished().filter(start_tasks::lease_until.gt(TimestampCol(now)));
            let leased: i64 = leased.count().get_result(conn)?;
            Ok(StartQueueCounts {
                leased: u64::try_from(leased).unwrap_or_default(),
                waiting: u64::try_from(all - leased).unwrap_or_default(),
            })
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let sandbox = sandboxes::table
                .filter(sandboxes::id.eq(start_tasks::sandbox_id))
                .select(sandboxes::id);
            let old: Vec<(UuidCol, UuidCol)> = start_tasks::table
                .into_boxed::<AnyBackend>()
                .filter(not(start_tasks::is_open))
                .filter(start_tasks::updated_at.lt(TimestampCol(before)))
                .filter(
                    start_tasks::status
                        .ne(StartStatus::Error.as_str())
                        .or(not(exists(sandbox))),
                )
                .order((start_tasks::updated_at.asc(), start_tasks::id.asc()))
                .limit(row_limit(limit))
                .select((start_tasks::id, start_tasks::conversation_id))
                .load(conn)?;
            let (ids, conversations): (Vec<UuidCol>, Vec<UuidCol>) = old.into_iter().unzip();
            for batch in ids.chunks(DELETION_BATCH_ROWS) {
                diesel::delete(start_tasks::table.filter(start_tasks::id.eq_any(batch)))
                    .execute(conn)?;
            }
            delete_orphans(conn, &conversations)?;
            Ok(ids.len() as u64)
        })
        .await
    }
}
