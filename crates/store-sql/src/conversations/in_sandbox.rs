//! Conversations by sandbox, for the reconciler.

use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::{Conversation, ExecutionStatus, UnsettledConversation};
use domain::id::SandboxId;
use domain::sandbox::{DesiredState, SandboxStatus};

use crate::conversations::rows::{self, ConversationRow};
use crate::database::connection::{AnyConnection, on_backend};
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::{conversations, sandboxes};

type UnsettledRow = (
    UuidCol,
    TextCol<SandboxId>,
    Option<String>,
    Option<TextCol<ExecutionStatus>>,
);

pub(crate) fn list(
    conn: &mut AnyConnection,
    sandbox: &str,
    limit: usize,
) -> Result<Vec<Conversation>, TransactionError> {
    let rows = conversations::table
        .filter(conversations::sandbox_id.eq(sandbox))
        .order((conversations::created_at.desc(), conversations::id.desc()))
        .limit(row_limit(limit))
        .select(ConversationRow::as_select())
        .load(conn)
        .map_decode_error(rows::ENTITY)?;
    Ok(rows.into_iter().map(Conversation::from).collect())
}

pub(crate) fn list_unsettled(
    conn: &mut AnyConnection,
    host: &str,
    untitled_since: Timestamp,
    limit: usize,
) -> Result<Vec<UnsettledConversation>, TransactionError> {
    let may_change = conversations::execution_status
        .is_null()
        .or(conversations::execution_status
            .eq(ExecutionStatus::Running.as_str())
            .assume_not_null())
        .or(conversations::auto_title
            .and(conversations::created_at.gt(TimestampCol(untitled_since))));
    let loaded: QueryResult<Vec<UnsettledRow>> = on_backend!(conn, |c| sandboxes::table
        .inner_join(conversations::table.on(conversations::sandbox_id.eq(sandboxes::id)))
        .filter(sandboxes::host.eq(host))
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
        .filter(may_change)
        .order((sandboxes::id, conversations::id))
        .limit(row_limit(limit))
        .select((
            conversations::id,
            conversations::sandbox_id,
            conversations::title,
            conversations::execution_status,
        ))
        .load(c));
    let decode = |(id, sandbox_id, title, status): UnsettledRow| UnsettledConversation {
        id: id.into(),
        sandbox_id: sandbox_id.0,
        title,
        execution_status: status.map(|status| status.0),
    };
    let rows = loaded.map_decode_error(rows::ENTITY)?;
    Ok(rows.into_iter().map(decode).collect())
}

pub(crate) fn settle_running(
    conn: &mut AnyConnection,
    sandbox: &str,
    to: ExecutionStatus,
    at: Timestamp,
) -> Result<u64, TransactionError> {
    let running = conversations::table
        .filter(conversations::sandbox_id.eq(sandbox))
        .filter(conversations::execution_status.eq(ExecutionStatus::Running.as_str()));
    let settled = diesel::update(running)
        .set((
            conversations::execution_status.eq(to.as_str()),
            conversations::status_at.eq(TimestampCol(at)),
            conversations::updated_at.eq(TimestampCol(at)),
        ))
        .execute(conn)?;
    Ok(u64::try_from(settled).unwrap_or(u64::MAX))
}
