//! Rows of start tasks.

use diesel::backend::Backend;
use diesel::expression::{AppearsOnTable, SelectableExpression, ValidGrouping, is_aggregate};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::StoreError;
use domain::start_task::{StartStatus, StartTask, StartTaskUpdate};

use crate::database::connection::AnyConnection;
use crate::schema::codec::{EntityDecoder, replace_nul, to_json};
use crate::schema::column_types::{RawJsonCol, TimestampCol, UuidCol};
use crate::schema::start_tasks;

/// A row as read and written.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = start_tasks, treat_none_as_default_value = false)]
pub(crate) struct StartTaskRow {
    pub(crate) id: UuidCol,
    owner: String,
    host: String,
    pub(crate) status: String,
    detail: Option<String>,
    notes: RawJsonCol,
    conversation_id: UuidCol,
    pub(crate) sandbox_id: String,
    owns_sandbox: bool,
    agent_server_url: Option<String>,
    request: RawJsonCol,
    sealed_secrets: Option<String>,
    timings: RawJsonCol,
    attempts: i64,
    pub(crate) created_at: TimestampCol,
    pub(crate) updated_at: TimestampCol,
    is_open: bool,
    pub(crate) begun: bool,
    pub(crate) fence: i64,
    lease_until: Option<TimestampCol>,
    request_bytes: i64,
}

impl TryFrom<&StartTask> for StartTaskRow {
    type Error = StoreError;

    fn try_from(task: &StartTask) -> Result<Self, StoreError> {
        let request = to_json(&task.request)?;
        Ok(Self {
            request_bytes: i64::try_from(request.0.len()).unwrap_or(i64::MAX),
            id: task.id.into(),
            owner: task.owner.to_string(),
            host: task.host.to_string(),
            status: task.status.to_string(),
            detail: task.detail.clone().map(replace_nul),
            notes: to_json(&task.notes)?,
            conversation_id: task.conversation_id.into(),
            sandbox_id: task.sandbox_id.to_string(),
            owns_sandbox: task.owns_sandbox,
            agent_server_url: task.agent_server_url.clone(),
            request,
            sealed_secrets: task
                .sealed_secrets
                .as_ref()
                .map(|sealed| sealed.as_text().to_owned()),
            timings: to_json(&task.timings)?,
            attempts: i64::from(task.attempts),
            created_at: TimestampCol(task.created_at),
            updated_at: TimestampCol(task.updated_at),
            is_open: !task.status.is_terminal(),
            begun: false,
            fence: 0,
            lease_until: None,
        })
    }
}

impl TryFrom<StartTaskRow> for StartTask {
    type Error = StoreError;

    fn try_from(row: StartTaskRow) -> Result<Self, StoreError> {
        let decode = EntityDecoder("start task");
        Ok(Self {
            id: row.id.into(),
            owner: decode.parse("owner", &row.owner)?,
            host: decode.parse("host", &row.host)?,
            status: decode.parse("status", &row.status)?,
            detail: row.detail,
            notes: decode.json("notes", &row.notes)?,
            conversation_id: row.conversation_id.into(),
            sandbox_id: decode.parse("sandbox_id", &row.sandbox_id)?,
            owns_sandbox: row.owns_sandbox,
            agent_server_url: row.agent_server_url,
            request: decode.json("request", &row.request)?,
            sealed_secrets: row.sealed_secrets.map(Sealed::from_text),
            timings: decode.json("timings", &row.timings)?,
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
        })
    }
}

/// Bytes of the documents and texts of a task, computed without reading the documents.
#[derive(Clone, Copy)]
pub(crate) struct StoredBytesSql(&'static str);

impl StoredBytesSql {
    /// The expression in the syntax of this database.
    pub(crate) const fn on(conn: &AnyConnection) -> Self {
        Self(match conn {
            AnyConnection::Sqlite(_) => {
                "(octet_length(start_tasks.request) + octet_length(start_tasks.notes) \
                 + coalesce(octet_length(start_tasks.detail), 0) \
                 + coalesce(octet_length(start_tasks.sealed_secrets), 0))"
            }
            #[cfg(feature = "postgres")]
            AnyConnection::Postgres(_) => {
                "(octet_length(start_tasks.request::text)::bigint \
                 + octet_length(start_tasks.notes::text) \
                 + coalesce(octet_length(start_tasks.detail), 0) \
                 + coalesce(octet_length(start_tasks.sealed_secrets), 0))"
            }
        })
    }
}

impl Expression for StoredBytesSql {
    type SqlType = BigInt;
}

impl<From> AppearsOnTable<From> for StoredBytesSql {}
impl<From> SelectableExpression<From> for StoredBytesSql {}

impl<GroupBy> ValidGrouping<GroupBy> for StoredBytesSql {
    type IsAggregate = is_aggregate::Never;
}

impl<DB: Backend> QueryFragment<DB> for StoredBytesSql {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

impl QueryId for StoredBytesSql {
    type QueryId = Self;
    // Each connection caches its own statements and belongs to one database.
    const HAS_STATIC_QUERY_ID: bool = true;
}

/// The columns that a step sets. `None` keeps the stored value, `Some(None)` clears it.
#[derive(AsChangeset)]
#[diesel(table_name = start_tasks)]
#[expect(
    clippy::option_option,
    reason = "diesel's changesets: keep, clear or set"
)]
pub(crate) struct StepColumns {
    status: String,
    detail: Option<Option<String>>,
    notes: RawJsonCol,
    agent_server_url: Option<String>,
    timings: RawJsonCol,
    updated_at: Option<TimestampCol>,
    is_open: bool,
    sealed_secrets: Option<Option<String>>,
    lease_until: Option<Option<TimestampCol>>,
}

impl StepColumns {
    /// Builds a step to `status`. A final status also erases the secrets and ends the lease.
    pub(crate) fn new(
        before: StartStatus,
        status: StartStatus,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        let is_final = status.is_terminal();
        Ok(Self {
            status: status.to_string(),
            detail: Some(step.detail.clone().map(replace_nul)),
            notes: to_json(&step.notes)?,
            agent_server_url: step.agent_server_url.clone(),
            timings: to_json(&step.timings)?,
            updated_at: (status != before).then_some(TimestampCol(at)),
            is_open: !is_final,
            sealed_secrets: is_final.then_some(None),
            lease_until: is_final.then_some(None),
        })
    }
}

/// The columns that end a task in ERROR from outside of its lease: `detail` says why, and the secrets and the lease are erased.
#[derive(AsChangeset)]
#[diesel(table_name = start_tasks)]
#[expect(
    clippy::option_option,
    reason = "diesel's changesets: keep, clear or set"
)]
pub(crate) struct FailureColumns {
    status: &'static str,
    detail: &'static str,
    sealed_secrets: Option<Option<String>>,
    is_open: bool,
    lease_until: Option<Option<TimestampCol>>,
    updated_at: TimestampCol,
}

impl FailureColumns {
    pub(crate) fn new(detail: &'static str, at: Timestamp) -> Self {
        Self {
            status: StartStatus::Error.as_str(),
            detail,
            sealed_secrets: Some(None),
            is_open: false,
            lease_until: Some(None),
            updated_at: TimestampCol(at),
        }
    }
}
