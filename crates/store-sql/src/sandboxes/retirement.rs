//! Selects sandboxes on which the service acts without a request of their owners.

use diesel::dsl::{exists, not};
use diesel::prelude::*;
use domain::conversation::ExecutionStatus;
use domain::sandbox::{DesiredState, RetirementReason, SandboxStatus};

use crate::database::connection::AnyBackend;
use crate::schema::column_types::TimestampCol;
use crate::schema::{conversations, sandboxes, start_tasks};

/// Sandboxes of a host that are not as they are wanted.
pub(super) fn unsettled(host: &str) -> sandboxes::BoxedQuery<'_, AnyBackend> {
    let desired = |it: DesiredState| sandboxes::desired.eq(it.as_str());
    let status = |it: SandboxStatus| sandboxes::status.eq(it.as_str());
    let runs_on = desired(DesiredState::Paused).and(status(SandboxStatus::Running));
    let is_unsettled = desired(DesiredState::Deleted)
        .or(status(SandboxStatus::Starting))
        .or(runs_on);
    sandboxes::table
        .filter(sandboxes::host.eq(host))
        .filter(is_unsettled)
        .into_boxed::<AnyBackend>()
}

/// Sandboxes to which the reason applies.
///
/// `HostSandboxRepository::retire` checks this in a serializable transaction. On Postgres, such a transaction also tracks
/// the absence of the conversations and start tasks that this query looks for. If another transaction adds one and reads
/// the sandbox at the same time, Postgres orders the two or makes one of them retry.
pub(super) fn retirable<'a>(reason: RetirementReason) -> sandboxes::BoxedQuery<'a, AnyBackend> {
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
