//! Selects sandboxes that the service may retire without a request of their owners.

use diesel::dsl::{exists, not};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::ExecutionStatus;
use domain::sandbox::{DesiredState, RetirementReason, Sandbox, SandboxStatus};

use super::rows::SandboxRow;
use super::store;
use crate::database::connection::{Any, AnyConnection};
use crate::error::TransactionError;
use crate::schema::column_types::TimestampCol;
use crate::schema::{conversations, sandboxes, start_tasks};

/// Sandboxes to which the reason applies.
///
/// Callers decide by this within `Db::write`. On Postgres, a serializable transaction also tracks the absence of the
/// conversations and start tasks that this query looks for. If another transaction adds one and reads the sandbox at the same
/// time, Postgres orders the two or retries one.
pub(crate) fn due<'a>(why: RetirementReason) -> sandboxes::BoxedQuery<'a, Any> {
    let inside = || conversations::table.filter(conversations::sandbox_id.eq(sandboxes::id));
    let runs = inside()
        .filter(conversations::execution_status.eq(ExecutionStatus::Running.as_str()))
        .select(conversations::id);
    let starts = start_tasks::table
        .filter(start_tasks::sandbox_id.eq(sandboxes::id))
        .filter(start_tasks::is_open)
        .select(start_tasks::id);
    let unused = sandboxes::table
        .filter(not(exists(runs)))
        .filter(not(exists(starts)))
        .into_boxed::<Any>();
    match why {
        RetirementReason::IdleSince(since) => {
            let changed = inside()
                .filter(conversations::updated_at.ge(TimestampCol(since)))
                .select(conversations::id);
            unused
                .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
                .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
                .filter(sandboxes::updated_at.lt(TimestampCol(since)))
                .filter(not(exists(changed)))
        }
        RetirementReason::OlderThan(born) => unused
            .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()))
            .filter(sandboxes::created_at.lt(TimestampCol(born))),
    }
}

/// Retires the sandbox if it is still due.
pub(super) fn retire(
    conn: &mut AnyConnection,
    id: &str,
    why: RetirementReason,
    at: Timestamp,
) -> Result<Option<Sandbox>, TransactionError> {
    let row = due(why)
        .filter(sandboxes::id.eq(id))
        .select(SandboxRow::as_select())
        .first(conn)
        .optional()?;
    let Some(mut sandbox) = row.map(Sandbox::try_from).transpose()? else {
        return Ok(None);
    };
    sandbox.desired = why.desired();
    if sandbox.desired == DesiredState::Paused {
        sandbox.paused_at = Some(at);
    }
    sandbox.updated_at = at;
    store(conn, &sandbox)?;
    Ok(Some(sandbox))
}
