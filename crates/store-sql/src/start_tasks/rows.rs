//! Rows of start tasks.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use domain::clock::Timestamp;
use domain::error::Entity;
use domain::id::{HostId, OwnerId, SandboxId};
use domain::json::text_bytes;
use domain::start_task::{StartRequest, StartStatus, StartTask, StartTaskUpdate};

use crate::database::connection::AnyConnection;
use crate::queries::static_sql::StaticSql;
use crate::schema::codec::{replace_nul, row_limit};
use crate::schema::column_types::{JsonCol, TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::start_tasks;

pub(crate) const ENTITY: Entity = Entity::StartTask;

/// A row as read and written.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = start_tasks, treat_none_as_default_value = false)]
pub(crate) struct StartTaskRow {
    pub(crate) id: UuidCol,
    owner: TextCol<OwnerId>,
    host: TextCol<HostId>,
    pub(crate) status: TextCol<StartStatus>,
    detail: Option<String>,
    notes: JsonCol<Vec<String>>,
    conversation_id: UuidCol,
    pub(crate) sandbox_id: TextCol<SandboxId>,
    owns_sandbox: bool,
    agent_server_url: Option<String>,
    request: JsonCol<StartRequest>,
    sealed_secrets: Option<String>,
    timings: JsonCol<BTreeMap<String, u64>>,
    attempts: i64,
    pub(crate) created_at: TimestampCol,
    pub(crate) updated_at: TimestampCol,
    is_open: bool,
    pub(crate) begun: bool,
    pub(crate) fence: i64,
    lease_until: Option<TimestampCol>,
    request_bytes: i64,
}

same_fields! {
    StartTaskRow, StartTask, [
        id, owner, host, status, detail, notes, conversation_id, sandbox_id, owns_sandbox, agent_server_url,
        request, sealed_secrets, timings, attempts, created_at, updated_at,
    ],
    |task| {
        is_open: !task.status.is_terminal(),
        begun: false,
        fence: 0,
        lease_until: None,
        request_bytes: row_limit(text_bytes(&task.request)),
    }
}

/// Bytes of the documents and texts of a task, computed without reading the documents.
pub(crate) const fn stored_bytes(conn: &AnyConnection) -> StaticSql<BigInt> {
    StaticSql::new(match conn {
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

/// The columns that a step or a failure sets. `None` keeps the stored value, `Some(None)` clears it.
#[derive(AsChangeset)]
#[diesel(table_name = start_tasks)]
#[expect(
    clippy::option_option,
    reason = "diesel's changesets: keep, clear or set"
)]
pub(crate) struct StepColumns {
    status: &'static str,
    detail: Option<Option<String>>,
    notes: Option<JsonCol<Vec<String>>>,
    agent_server_url: Option<String>,
    timings: Option<JsonCol<BTreeMap<String, u64>>>,
    updated_at: Option<TimestampCol>,
    is_open: bool,
    sealed_secrets: Option<Option<String>>,
    lease_until: Option<Option<TimestampCol>>,
}

impl StepColumns {
    /// A final status also erases the secrets and ends the lease.
    fn status(status: StartStatus, detail: Option<String>) -> Self {
        let is_final = status.is_terminal();
        Self {
            status: status.as_str(),
            detail: Some(detail),
            notes: None,
            agent_server_url: None,
            timings: None,
            updated_at: None,
            is_open: !is_final,
            sealed_secrets: is_final.then_some(None),
            lease_until: is_final.then_some(None),
        }
    }

    /// Builds a step to `status`.
    pub(crate) fn new(
        before: StartStatus,
        status: StartStatus,
        step: &StartTaskUpdate,
        at: Timestamp,
    ) -> Self {
        Self {
            notes: Some(JsonCol(step.notes.clone())),
            agent_server_url: step.agent_server_url.clone(),
            timings: Some(JsonCol(step.timings.clone())),
            updated_at: (status != before).then_some(TimestampCol(at)),
            ..Self::status(status, step.detail.clone().map(replace_nul))
        }
    }

    /// Ends a task in ERROR from outside of its lease.
    pub(crate) fn failure(detail: &str, at: Timestamp) -> Self {
        Self {
            updated_at: Some(TimestampCol(at)),
            ..Self::status(StartStatus::Error, Some(detail.to_owned()))
        }
    }
}
