//! Rows of conversations, and the reads and writes that several ports share inside one transaction.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::sql_types::Text;
use domain::agent::AgentKind;
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationReport, ConversationView, ExecutionStatus,
    Metrics, Trigger, fold_title,
};
use domain::error::{Entity, StoreError};
use domain::event::AppendOutcome;
use domain::git::GitProvider;
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::patch::Patch;
use domain::sandbox::Sandbox;
use domain::user::scope::Scope;

use crate::database::connection::AnyConnection;
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::queries::static_sql::StaticSql;
use crate::sandboxes::rows::SandboxRow;
use crate::schema::codec::{replace_nul, row_limit};
use crate::schema::column_types::{JsonCol, TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{conversations, deleted_conversations};

pub(crate) const ENTITY: Entity = Entity::Conversation;

/// A row as read and written. The folded title is write-only.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = conversations, treat_none_as_default_value = false)]
pub(crate) struct ConversationRow {
    pub(crate) id: UuidCol,
    pub(crate) owner: TextCol<OwnerId>,
    sandbox_id: TextCol<SandboxId>,
    title: Option<String>,
    auto_title: bool,
    selected_repository: Option<String>,
    selected_branch: Option<String>,
    git_provider: Option<TextCol<GitProvider>>,
    #[diesel(column_name = started_by)]
    trigger: Option<TextCol<Trigger>>,
    pr_numbers: JsonCol<Vec<i64>>,
    llm_model: Option<String>,
    agent_kind: TextCol<AgentKind>,
    metrics: JsonCol<Metrics>,
    parent: Option<UuidCol>,
    #[diesel(column_name = is_public)]
    public: Option<bool>,
    tags: JsonCol<BTreeMap<String, String>>,
    execution_status: Option<TextCol<ExecutionStatus>>,
    status_at: Option<TimestampCol>,
    pub(crate) created_at: TimestampCol,
    pub(super) updated_at: TimestampCol,
}

/// The columns that a report may change.
#[derive(AsChangeset)]
#[diesel(table_name = conversations, treat_none_as_null = true)]
pub(crate) struct ReportedColumns {
    pub(crate) title: Option<String>,
    pub(crate) title_folded: Option<String>,
    pub(crate) llm_model: Option<String>,
    pub(crate) metrics: JsonCol<Metrics>,
    pub(crate) tags: JsonCol<BTreeMap<String, String>>,
    pub(crate) execution_status: Option<String>,
    pub(crate) status_at: Option<TimestampCol>,
    pub(crate) updated_at: TimestampCol,
}

same_fields! {
    ConversationRow, Conversation, [
        id, owner, sandbox_id, title, auto_title, selected_repository, selected_branch, git_provider,
        trigger, pr_numbers, llm_model, agent_kind, metrics, parent, public, tags, execution_status,
        created_at, updated_at,
    ],
    |_conversation| {
        // Unknown, so the first report of the agent server counts as newer.
        status_at: None,
    }
}

/// A conversation, its sandbox and the ids of its children ([`child_ids`]).
pub(crate) type JoinedRow = (ConversationRow, Option<SandboxRow>, String);

/// The ids of a conversation's children, oldest first, as comma-separated text, so that a single prepared statement reads a
/// list. Children belong to the owner of their parent. The condition on the owner lets the index provide the order.
pub(crate) const fn child_ids(conn: &AnyConnection) -> StaticSql<Text> {
    StaticSql::new(match conn {
        AnyConnection::Sqlite(_) => {
            "coalesce((SELECT group_concat(id, ',') FROM (SELECT child.id FROM conversations AS child \
             WHERE child.parent = conversations.id AND child.owner = conversations.owner \
             ORDER BY child.created_at, child.id)), '')"
        }
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(_) => {
            "array_to_string(ARRAY(SELECT child.id FROM conversations AS child \
             WHERE child.parent = conversations.id AND child.owner = conversations.owner \
             ORDER BY child.created_at, child.id), ',')"
        }
    })
}

/// Bytes of the texts in a row whose length clients, sandboxes and the number of children determine.
pub(crate) fn text_bytes((row, _, children): &JoinedRow) -> usize {
    let texts = [
        &row.title,
        &row.selected_repository,
        &row.selected_branch,
        &row.llm_model,
    ];
    let texts = texts.into_iter().flatten().map(String::len);
    let tags = row.tags.0.iter();
    let tags = tags.map(|(name, value)| name.len() + value.len());
    texts.chain(tags).sum::<usize>() + children.len()
}

pub(crate) fn view(
    (row, sandbox, children): JoinedRow,
) -> Result<ConversationView, TransactionError> {
    let children = children.split(',').filter(|id| !id.is_empty());
    let children = children.map(|id| {
        id.parse().map_err(|cause| StoreError::Corrupt {
            entity: ENTITY,
            what: format!("child: {cause}"),
        })
    });
    Ok(ConversationView {
        children: children.collect::<Result<_, _>>()?,
        sandbox: sandbox.map(Sandbox::from),
        conversation: row.into(),
    })
}

/// The case-folded title, for searches.
fn folded_title(conversation: &Conversation) -> Option<String> {
    conversation
        .title
        .as_deref()
        .map(fold_title)
        .map(replace_nul)
}

/// Loads a row regardless of its owner.
pub(crate) fn load(
    conn: &mut AnyConnection,
    id: ConversationId,
) -> Result<Option<ConversationRow>, TransactionError> {
    conversations::table
        .find(UuidCol::from(id))
        .select(ConversationRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(ENTITY)
}

pub(crate) fn is_visible(
    conn: &mut AnyConnection,
    scope: &Scope,
    id: ConversationId,
) -> Result<bool, TransactionError> {
    let owner: Option<TextCol<OwnerId>> = conversations::table
        .find(UuidCol::from(id))
        .select(conversations::owner)
        .first(conn)
        .optional()?;
    Ok(owner.is_some_and(|owner| scope.sees(&owner.0)))
}

pub(crate) fn is_deleted(
    conn: &mut AnyConnection,
    id: ConversationId,
) -> Result<bool, TransactionError> {
    let count: i64 = deleted_conversations::table
        .find(UuidCol::from(id))
        .count()
        .get_result(conn)?;
    Ok(count > 0)
}

pub(crate) fn insert(
    conn: &mut AnyConnection,
    conversation: &Conversation,
) -> Result<(), TransactionError> {
    diesel::insert_into(conversations::table)
        .values((
            ConversationRow::from(conversation),
            conversations::title_folded.eq(folded_title(conversation)),
        ))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Conversation)))?;
    Ok(())
}

/// Loads a row and locks it until the transaction ends.
pub(crate) fn lock(
    conn: &mut AnyConnection,
    id: ConversationId,
) -> Result<Option<ConversationRow>, TransactionError> {
    match conn {
        // An SQLite write transaction locks the whole file.
        AnyConnection::Sqlite(_) => load(conn, id),
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => conversations::table
            .find(UuidCol::from(id))
            .select(ConversationRow::as_select())
            .for_no_key_update()
            .first(conn)
            .optional()
            .map_decode_error(ENTITY),
    }
}

/// Loads and locks the row that `origin` reports about, or returns why the report is refused.
pub(crate) fn lock_reported(
    conn: &mut AnyConnection,
    origin: &SandboxId,
    id: ConversationId,
) -> Result<Result<ConversationRow, AppendOutcome>, TransactionError> {
    let Some(row) = lock(conn, id)? else {
        let refusal = if is_deleted(conn, id)? {
            AppendOutcome::Deleted
        } else {
            AppendOutcome::Unknown
        };
        return Ok(Err(refusal));
    };
    if row.sandbox_id.0 == *origin {
        Ok(Ok(row))
    } else {
        Ok(Err(AppendOutcome::Foreign))
    }
}

/// Number of new events and bytes of their documents.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddedEvents {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Applies a report to a row that the same transaction has loaded. New events always update the conversation.
pub(crate) fn apply_report(
    conn: &mut AnyConnection,
    row: ConversationRow,
    report: &ConversationReport,
    added: AddedEvents,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let has_grown = added.count > 0;
    if report.is_empty() && !has_grown {
        return Ok(());
    }
    let id = row.id;
    let (columns, has_changed) = reported_columns(row, report, at);
    if has_changed || has_grown {
        let [count, bytes] = [added.count, added.bytes].map(row_limit);
        diesel::update(conversations::table.find(id))
            .set((
                columns,
                conversations::event_count.eq(conversations::event_count + count),
                conversations::event_bytes.eq(conversations::event_bytes + bytes),
            ))
            .execute(conn)?;
    }
    Ok(())
}

/// The columns of a row after a report, and whether the report changed any of them.
pub(crate) fn reported_columns(
    row: ConversationRow,
    report: &ConversationReport,
    at: Timestamp,
) -> (ReportedColumns, bool) {
    let mut status_at = row.status_at.map(|at| at.0);
    let mut conversation = Conversation::from(row);
    let has_changed = conversation.apply_report(report, &mut status_at);
    let columns = ReportedColumns {
        title_folded: folded_title(&conversation),
        title: conversation.title.map(replace_nul),
        llm_model: conversation.llm_model.map(replace_nul),
        metrics: JsonCol(conversation.metrics),
        tags: JsonCol(conversation.tags),
        execution_status: conversation
            .execution_status
            .map(|status| status.to_string()),
        status_at: status_at.map(TimestampCol),
        updated_at: TimestampCol(at),
    };
    (columns, has_changed)
}

/// The columns that a [`ConversationChange`] sets: `None` keeps a column, `Some(None)` clears it.
#[derive(AsChangeset)]
#[diesel(table_name = conversations)]
#[expect(
    clippy::option_option,
    reason = "diesel's changesets: keep, clear or set"
)]
pub(crate) struct ChangedColumns {
    title: Option<Option<String>>,
    title_folded: Option<Option<String>>,
    auto_title: Option<bool>,
    is_public: Option<Option<bool>>,
    selected_repository: Option<Option<String>>,
    selected_branch: Option<Option<String>>,
    git_provider: Option<Option<String>>,
    updated_at: TimestampCol,
}

impl ChangedColumns {
    pub(crate) fn new(change: &ConversationChange, at: Timestamp) -> Self {
        let text = |patch: &Patch<String>| {
            let update = patch.clone().into_update();
            update.map(|text| text.map(replace_nul))
        };
        let title = text(&change.title);
        Self {
            title_folded: title.as_ref().map(|title| title.as_deref().map(fold_title)),
            auto_title: title.as_ref().map(|_| false),
            title,
            is_public: change.public.clone().into_update(),
            selected_repository: text(&change.selected_repository),
            selected_branch: text(&change.selected_branch),
            git_provider: change
                .git_provider
                .clone()
                .into_update()
                .map(|provider| provider.map(|provider| provider.to_string())),
            updated_at: TimestampCol(at),
        }
    }
}
