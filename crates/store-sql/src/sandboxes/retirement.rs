//! Selects sandboxes that the service may retire without a request of their owners.

use diesel::dsl::{exists, not};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::ExecutionStatus;
use domain::sandbox::{DesiredState, RetirementReason, Sandbox, SandboxStatus};

use super::rows::SandboxRow;
use super::save;
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::error::TransactionError;
use crate::schema::column_types::TimestampCol;
use crate::schema::{conversations, sandboxes, start_tasks};

/// Sandboxes to which the reason applies.
///
/// [`retire`] checks this in a serializable transaction. On Postgres, such a transaction also tracks the absence of the
/// conversations and start tasks that this query looks for. If another transaction adds one and reads the sandbox at the same
/// time, Postgres orders the two or makes one of them retry.
pub(crate) fn retirable<'a>(reason: RetirementReason) -> sandboxes::BoxedQuery<'a, AnyBackend> {
    let inside = || conversations::table.filter(conversations::sandbox_id.eq(sandboxes::id));
    let running = inside()
        .filter(conversations::execution_status.eq(ExecutionStatus::Running.as_str()))
        .select(conversations::id);
    let starting = start_tasks::table
        .filter(start_tasks::sandbox_id.eq(sandboxes::id))
        .filter(start_tasks::is_open)
        .select(start_tasks::id);
    let unoccupied = sandboxes::table
        .filter(not(exists(running)))
        .filter(not(exists(starting)))
        .into_boxed::<AnyBackend>();
    match reason {
        RetirementReason::IdleSince(since) => {
            let changed = inside()
                .filter(conversations::updated_at.ge(TimestampCol(since)))
                .select(conversations::id);
            unoccupied
                .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
                .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
                .filter(sandboxes::updated_at.lt(TimestampCol(since)))
                .filter(not(exists(changed)))
        }
        RetirementReason::OlderThan(created_before) => unoccupied
            .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()))
            .filter(sandboxes::created_at.lt(TimestampCol(created_before))),
    }
}

/// Retires the sandbox if the reason still applies. See `HostSandboxRepository::retire`.
pub(super) fn retire(
    conn: &mut AnyConnection,
    id: &str,
    reason: RetirementReason,
    at: Timestamp,
) -> Result<Option<Sandbox>, TransactionError> {
    let row = retirable(reason)
        .filter(sandboxes::id.eq(id))
        .select(SandboxRow::as_select())
        .first(conn)
        .optional()?;
    let Some(mut sandbox) = row.map(Sandbox::from) else {
        return Ok(None);
    };
    sandbox.desired = reason.desired();
    if sandbox.desired == DesiredState::Paused {
        sandbox.paused_at = Some(at);
    }
    sandbox.updated_at = at;
    save(conn, &sandbox)?;
    Ok(Some(sandbox))
}
