//! The ports of conversations.

pub(crate) mod deletion;
mod in_sandbox;
pub(crate) mod pending_messages;
pub(crate) mod rows;

use async_trait::async_trait;
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationDeletionRepository, ConversationFilter,
    ConversationOrder, ConversationReport, ConversationReportRepository, ConversationRepository,
    ConversationView, ExecutionStatus, MAX_CONVERSATIONS_FOR_ADOPTION, PendingAgentDeletion,
    UnsettledConversation, add_pull_request_number, fold_title,
};
use domain::error::{Entity, StoreError};
use domain::event::AppendOutcome;
use domain::id::{ConversationId, HostId, OwnerId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::user::scope::Scope;
use uuid::Uuid;

use self::deletion::DELETION_BATCH_ROWS;
use self::rows::{AddedEvents, ChangedColumns, ConversationRow, JoinedRow, child_ids};
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::sandboxes::load_undeleted;
use crate::sandboxes::rows::SandboxRow;
use crate::schema::codec::{find_in_order, owner_filter, replace_nul, row_limit};
use crate::schema::column_types::{JsonCol, TextCol, TimestampCol, UuidCol};
use crate::schema::{conversations, deleted_conversations, sandboxes, start_tasks};
use crate::store::SqlStore;

/// The listing in page tokens; tokens of one order are not valid for another.
fn listing(order: ConversationOrder) -> &'static str {
    match order {
        ConversationOrder::CreatedAt => "conversations+created",
        ConversationOrder::CreatedAtDesc => "conversations",
        ConversationOrder::UpdatedAt => "conversations+updated",
        ConversationOrder::UpdatedAtDesc => "conversations-updated",
    }
}

/// Applies the order and the cursor to a boxed query.
macro_rules! ordered {
    ($query:expr, $order:expr, $after:expr) => {{
        let (query, after) = ($query, $after);
        let (created, updated, id) = (
            conversations::created_at,
            conversations::updated_at,
            conversations::id,
        );
        match $order {
            ConversationOrder::CreatedAt => keyset!(asc, query, created, id, after),
            ConversationOrder::CreatedAtDesc => keyset!(desc, query, created, id, after),
            ConversationOrder::UpdatedAt => keyset!(asc, query, updated, id, after),
            ConversationOrder::UpdatedAtDesc => keyset!(desc, query, updated, id, after),
        }
    }};
}

diesel::define_sql_function! {
    /// Unlike `LIKE`, it has no wildcards and no limit on the length of the needle (`SQLite`'s `LIKE`: 50000 bytes).
    fn replace(text: Nullable<Text>, needle: Text, by: Text) -> Nullable<Text>;
}

/// Conversations left-joined with their sandboxes, without sandboxes whose deletion is requested. Loads [`JoinedRow`]s.
macro_rules! joined {
    ($conn:ident) => {
        conversations::table
            .left_join(
                sandboxes::table.on(sandboxes::id
                    .eq(conversations::sandbox_id)
                    .and(sandboxes::desired.ne(DesiredState::Deleted.as_str()))),
            )
            .select((
                ConversationRow::as_select(),
                Option::<SandboxRow>::as_select(),
                child_ids($conn),
            ))
            .into_boxed::<AnyBackend>()
    };
}

/// Applies scope and filter to a boxed query with any joins.
macro_rules! matching {
    ($query:expr, $scope:expr, $filter:expr) => {{
        let (mut query, filter): (_, &ConversationFilter) = ($query, $filter);
        match filter.parent {
            // A filter by parent selects sub-conversations.
            Some(parent) => query = query.filter(conversations::parent.eq(UuidCol::from(parent))),
            None if filter.include_sub_conversations => {}
            None => query = query.filter(conversations::parent.is_null()),
        }
        if let Some(needle) = filter
            .title_contains
            .as_deref()
            .map(fold_title)
            .map(replace_nul)
        {
            query = if needle.is_empty() {
                query.filter(conversations::title_folded.is_not_null())
            } else {
                query.filter(
                    replace(conversations::title_folded, needle, "")
                        .ne(conversations::title_folded),
                )
            };
        }
        filter_by! {
            query,
            owner_filter($scope) => |user| conversations::owner.eq(user);
            filter.created_from => |from| conversations::created_at.ge(TimestampCol(from));
            filter.created_before => |before| conversations::created_at.lt(TimestampCol(before));
            filter.updated_from => |from| conversations::updated_at.ge(TimestampCol(from));
            filter.updated_before => |before| conversations::updated_at.lt(TimestampCol(before));
            &filter.sandbox_id => |sandbox| conversations::sandbox_id.eq(sandbox.to_string());
            &filter.selected_repository => |name| conversations::selected_repository.eq(replace_nul(name));
            filter.trigger => |trigger| conversations::started_by.eq(trigger.as_str());
        }
        query
    }};
}

fn view(
    conn: &mut AnyConnection,
    scope: &Scope,
    id: ConversationId,
) -> Result<Option<ConversationView>, TransactionError> {
    let mut query = joined!(conn).filter(conversations::id.eq(UuidCol::from(id)));
    filter_by! { query, owner_filter(scope) => |user| conversations::owner.eq(user); }
    let row: Option<JoinedRow> = query
        .first(conn)
        .optional()
        .map_decode_error(rows::ENTITY)?;
    row.map(rows::view).transpose()
}

/// Checks whether the conversation may be adopted: `Stored { new: 1 }` if so. See `ConversationReportRepository::adopt`.
fn check_adoption(
    conn: &mut AnyConnection,
    conversation: &Conversation,
) -> Result<AppendOutcome, TransactionError> {
    match rows::lock_reported(conn, &conversation.sandbox_id, conversation.id)? {
        Ok(_) => return Ok(AppendOutcome::Stored { new: 0 }),
        Err(AppendOutcome::Unknown) => {}
        Err(outcome) => return Ok(outcome),
    }
    // An unfinished start task has reserved the id and stores the row itself.
    let reserved: Option<String> = start_tasks::table
        .filter(start_tasks::conversation_id.eq(UuidCol::from(conversation.id)))
        .filter(start_tasks::is_open)
        .select(start_tasks::sandbox_id)
        .first(conn)
        .optional()?;
    if let Some(sandbox) = reserved {
        return Ok(if sandbox == conversation.sandbox_id.as_str() {
            AppendOutcome::Stored { new: 0 }
        } else {
            AppendOutcome::Foreign
        });
    }
    // The start failed while the agent server created the conversation, so the conversation is not adopted.
    let failed = start_tasks::table
        .filter(start_tasks::conversation_id.eq(UuidCol::from(conversation.id)))
        .filter(start_tasks::sandbox_id.eq(conversation.sandbox_id.as_str()))
        .select(start_tasks::id)
        .first::<UuidCol>(conn)
        .optional()?;
    if failed.is_some() {
        return Ok(AppendOutcome::Deleted);
    }
    let count: i64 = conversations::table
        .filter(conversations::sandbox_id.eq(conversation.sandbox_id.as_str()))
        .count()
        .get_result(conn)?;
    if count >= i64::from(MAX_CONVERSATIONS_FOR_ADOPTION) {
        return Ok(AppendOutcome::Unknown);
    }
    // The sandbox may have been deleted since its key was checked.
    match load_undeleted(conn, &conversation.sandbox_id)? {
        Some(sandbox) if sandbox.owner == conversation.owner => {
            Ok(AppendOutcome::Stored { new: 1 })
        }
        _ => Ok(AppendOutcome::Unknown),
    }
}

#[async_trait]
impl ConversationRepository for SqlStore {
    async fn find(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Option<ConversationView>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let scope = scope.clone();
        jobs.run(JobMode::Query, move |conn| view(conn, &scope, id))
            .await
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<ConversationView>>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, ids) = (scope.clone(), ids.to_vec());
        jobs.run(JobMode::Read, move |conn| {
            let id_of = |view: &ConversationView| view.conversation.id;
            find_in_order(&ids, id_of, |batch| {
                let keys = batch.iter().copied().map(UuidCol::from);
                let mut query = joined!(conn).filter(conversations::id.eq_any(keys));
                filter_by! { query, owner_filter(&scope) => |user| conversations::owner.eq(user); }
                let loaded: Vec<JoinedRow> = query.load(conn).map_decode_error(rows::ENTITY)?;
                loaded.into_iter().map(rows::view).collect()
            })
        })
        .await
    }

    async fn search(
        &self,
        scope: &Scope,
        filter: &ConversationFilter,
        page: &PageRequest,
    ) -> Result<Page<ConversationView>, StoreError> {
        let jobs = self.db.for_scope(scope);
        // The search reads every title.
        let is_scan = filter.title_contains.is_some();
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        let (order, listing) = (filter.order, listing(filter.order));
        let after: Option<Cursor<Uuid>> = page_token::decode(listing, &page)?;
        let job = move |conn: &mut AnyConnection| {
            let query = matching!(joined!(conn), &scope, &filter);
            let after = after.map(|(at, id)| (at, UuidCol(id)));
            let loaded: Vec<JoinedRow> = ordered!(query, order, after)
                .limit(page_token::rows_to_load(&page))
                .load(conn)
                .map_decode_error(rows::ENTITY)?;
            let page = page_token::limit_by_bytes(&page, loaded.iter().map(rows::text_bytes));
            page_token::build_page(listing, &page, loaded, |(row, ..)| {
                let time = match order {
                    ConversationOrder::CreatedAt | ConversationOrder::CreatedAtDesc => {
                        row.created_at
                    }
                    ConversationOrder::UpdatedAt | ConversationOrder::UpdatedAtDesc => {
                        row.updated_at
                    }
                };
                (time, row.id.0)
            })
            .try_map(rows::view)
        };
        if is_scan {
            jobs.run(JobMode::Scan, job).await
        } else {
            jobs.run(JobMode::Query, job).await
        }
    }

    async fn count(&self, scope: &Scope, filter: &ConversationFilter) -> Result<u64, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, filter) = (scope.clone(), filter.clone());
        jobs.run(JobMode::Scan, move |conn| {
            let query = conversations::table.into_boxed::<AnyBackend>();
            let count: i64 = matching!(query, &scope, &filter).count().get_result(conn)?;
            Ok(u64::try_from(count).unwrap_or_default())
        })
        .await
    }

    async fn update(
        &self,
        scope: &Scope,
        id: ConversationId,
        change: &ConversationChange,
        at: Timestamp,
    ) -> Result<Option<ConversationView>, StoreError> {
        let jobs = self.db.for_scope(scope);
        if change.is_empty() {
            return self.find(scope, id).await;
        }
        let (scope, change) = (scope.clone(), change.clone());
        jobs.run(JobMode::Write, move |conn| {
            let mut update = diesel::update(conversations::table.find(UuidCol::from(id)))
                .set(ChangedColumns::new(&change, at))
                .into_boxed();
            filter_by! { update, owner_filter(&scope) => |user| conversations::owner.eq(user); }
            if update.execute(conn)? == 0 {
                return Ok(None);
            }
            view(conn, &scope, id)
        })
        .await
    }

    async fn add_pull_request(
        &self,
        scope: &Scope,
        id: ConversationId,
        number: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let jobs = self.db.for_scope(scope);
        let scope = scope.clone();
        jobs.run(JobMode::Write, move |conn| {
            let columns = (conversations::owner, conversations::pr_numbers);
            let row = conversations::table.find(UuidCol::from(id)).select(columns);
            // The row lock serializes additions to the list.
            let locked: Option<(TextCol<OwnerId>, JsonCol<Vec<i64>>)> = match conn {
                AnyConnection::Sqlite(conn) => row.first(conn).optional(),
                #[cfg(feature = "postgres")]
                AnyConnection::Postgres(conn) => row.for_no_key_update().first(conn).optional(),
            }
            .map_decode_error(rows::ENTITY)?;
            let visible = locked.filter(|(owner, _)| scope.sees(&owner.0));
            let Some((_, JsonCol(mut numbers))) = visible else {
                return Ok(false);
            };
            if add_pull_request_number(&mut numbers, number) {
                diesel::update(conversations::table.find(UuidCol::from(id)))
                    .set((
                        conversations::pr_numbers.eq(JsonCol(numbers)),
                        conversations::updated_at.eq(TimestampCol(at)),
                    ))
                    .execute(conn)?;
            }
            Ok(true)
        })
        .await
    }

    async fn delete(
        &self,
        scope: &Scope,
        id: ConversationId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let jobs = self.db.for_scope(scope);
        let scope = scope.clone();
        jobs.run(JobMode::Write, move |conn| {
            if !rows::is_visible(conn, &scope, id)? {
                return Ok(false);
            }
            deletion::delete_tree(conn, id, at)?;
            Ok(true)
        })
        .await
    }
}

#[async_trait]
impl ConversationReportRepository for SqlStore {
    async fn adopt(&self, conversation: &Conversation) -> Result<AppendOutcome, StoreError> {
        let jobs = self.db.for_sandbox(&conversation.sandbox_id);
        let conversation = conversation.clone();
        jobs.run(JobMode::Write, move |conn| {
            let outcome = check_adoption(conn, &conversation)?;
            if outcome == (AppendOutcome::Stored { new: 1 }) {
                rows::insert(conn, &conversation)?;
            }
            Ok(outcome)
        })
        .await
    }

    async fn apply_report(
        &self,
        origin: &SandboxId,
        id: ConversationId,
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let jobs = self.db.for_sandbox(origin);
        let (origin, report) = (origin.clone(), report.clone());
        jobs.run(
            JobMode::WriteLocked,
            move |conn| match rows::lock_reported(conn, &origin, id)? {
                Ok(row) => {
                    rows::apply_report(conn, row, &report, AddedEvents::default(), at)?;
                    Ok(AppendOutcome::Stored { new: 0 })
                }
                Err(outcome) => Ok(outcome),
            },
        )
        .await
    }

    async fn list_in_sandbox(
        &self,
        sandbox: &SandboxId,
        limit: usize,
    ) -> Result<Vec<Conversation>, StoreError> {
        let sandbox = sandbox.to_string();
        self.run(Workload::Background, JobMode::Query, move |conn| {
            in_sandbox::list(conn, &sandbox, limit)
        })
        .await
    }

    async fn list_unsettled(
        &self,
        host: &HostId,
        untitled_since: Timestamp,
        limit: usize,
    ) -> Result<Vec<UnsettledConversation>, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Query, move |conn| {
            in_sandbox::list_unsettled(conn, &host, untitled_since, limit)
        })
        .await
    }

    async fn settle_running(
        &self,
        sandbox: &SandboxId,
        to: ExecutionStatus,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let sandbox = sandbox.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            in_sandbox::settle_running(conn, &sandbox, to, at)
        })
        .await
    }
}

#[async_trait]
impl ConversationDeletionRepository for SqlStore {
    async fn list_pending_agent_deletions(
        &self,
        limit: usize,
    ) -> Result<Vec<PendingAgentDeletion>, StoreError> {
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let rows: Vec<(UuidCol, TextCol<SandboxId>)> = deleted_conversations::table
                .inner_join(
                    sandboxes::table.on(sandboxes::id.eq(deleted_conversations::sandbox_id)),
                )
                .filter(deleted_conversations::pending)
                .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
                .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
                .order((
                    deleted_conversations::deleted_at.asc(),
                    deleted_conversations::id.asc(),
                ))
                .limit(row_limit(limit))
                .select((deleted_conversations::id, deleted_conversations::sandbox_id))
                .load(conn)
                .map_decode_error(Entity::Conversation)?;
            let pending = rows.into_iter().map(|(id, sandbox)| PendingAgentDeletion {
                id: id.into(),
                sandbox_id: sandbox.0,
            });
            Ok(pending.collect())
        })
        .await
    }

    async fn complete_agent_deletion(&self, id: ConversationId) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            diesel::update(deleted_conversations::table.find(UuidCol::from(id)))
                .set(deleted_conversations::pending.eq(false))
                .execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn prune_deleted(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            use crate::schema::deleted_conversations as records;
            let sandbox = sandboxes::table
                .filter(sandboxes::id.eq(records::sandbox_id))
                .select(sandboxes::id);
            let ids: Vec<UuidCol> = records::table
                .filter(records::deleted_at.lt(TimestampCol(before)))
                .filter(not(exists(sandbox)))
                .order((records::deleted_at.asc(), records::id.asc()))
                .limit(row_limit(limit))
                .select(records::id)
                .load(conn)?;
            for batch in ids.chunks(DELETION_BATCH_ROWS) {
                diesel::delete(records::table.filter(records::id.eq_any(batch))).execute(conn)?;
            }
            Ok(ids.len() as u64)
        })
        .await
    }
}
