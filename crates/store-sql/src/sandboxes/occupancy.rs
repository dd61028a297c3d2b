//! Occupancy of running sandboxes, and whether there is room for another sandbox or conversation.

use diesel::prelude::*;
use diesel::sql_types::Bool;
use domain::error::{ReachedCap, StoreError};
use domain::id::{OwnerId, SandboxId, SpecId, UserId};
use domain::sandbox::{DesiredState, Sandbox, SandboxCaps, SandboxOccupancy, SandboxStatus};

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::error::TransactionError;
use crate::sandboxes::rows::SandboxRow;
use crate::schema::column_types::TimestampCol;
use crate::schema::{conversations, sandboxes, start_tasks};

const MAX_SANDBOXES: i64 = 500;

/// Entity name in the error for a full sandbox.
const SANDBOX_CONVERSATIONS_ENTITY: &str = "conversations in that sandbox";

/// A sandbox, the number of its conversations, the number of its starts without a conversation, the last change of a
/// conversation, and the time of the last start.
type OccupancyRow = (
    SandboxRow,
    Option<i64>,
    Option<i64>,
    Option<TimestampCol>,
    Option<TimestampCol>,
);

pub(crate) fn list_running(
    conn: &mut AnyConnection,
    owner: &OwnerId,
    spec: &SpecId,
) -> Result<Vec<SandboxOccupancy>, TransactionError> {
    let inside = || conversations::table.filter(conversations::sandbox_id.eq(sandboxes::id));
    let starting = || {
        start_tasks::table
            .filter(start_tasks::sandbox_id.eq(sandboxes::id))
            .filter(start_tasks::is_open)
    };
    let rows: Vec<OccupancyRow> = sandboxes::table
        .filter(sandboxes::owner.eq(owner.as_str()))
        .filter(sandboxes::spec_id.eq(spec.as_str()))
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
        .order((sandboxes::created_at.desc(), sandboxes::id.desc()))
        .limit(MAX_SANDBOXES)
        .select((
            SandboxRow::as_select(),
            inside().count().single_value(),
            starting()
                .filter(start_tasks::begun.eq(false))
                .count()
                .single_value(),
            inside()
                .select(conversations::updated_at)
                .order(conversations::updated_at.desc())
                .limit(1)
                .single_value(),
            starting()
                .select(start_tasks::created_at)
                .order(start_tasks::created_at.desc())
                .limit(1)
                .single_value(),
        ))
        .load(conn)?;
    let occupancy = |(row, inside, starting, changed_at, started_at): OccupancyRow| {
        let sandbox = Sandbox::from(row);
        let used_at = changed_at.into_iter().chain(started_at);
        let count = inside.unwrap_or_default() + starting.unwrap_or_default();
        SandboxOccupancy {
            conversations: u32::try_from(count).unwrap_or(u32::MAX),
            used_at: used_at.map(|at| at.0).max().unwrap_or(sandbox.created_at),
            sandbox,
        }
    };
    Ok(rows.into_iter().map(occupancy).collect())
}

/// Returns an error if a sandbox has `max_conversations` already. Runs in the caller's transaction.
pub(crate) fn check_room(
    conn: &mut AnyConnection,
    id: &SandboxId,
    max_conversations: u32,
) -> Result<(), TransactionError> {
    let inside: i64 = conversations::table
        .filter(conversations::sandbox_id.eq(id.as_str()))
        .count()
        .get_result(conn)?;
    let starting: i64 = start_tasks::table
        .filter(start_tasks::sandbox_id.eq(id.as_str()))
        .filter(start_tasks::is_open)
        .filter(start_tasks::begun.eq(false))
        .count()
        .get_result(conn)?;
    if inside + starting < i64::from(max_conversations) {
        return Ok(());
    }
    Err(StoreError::Full {
        entity: SANDBOX_CONVERSATIONS_ENTITY,
        limit: max_conversations as usize,
    }
    .into())
}

/// The sandboxes of this user in all organizations. The columns sort by bytes.
fn owned_by_user(user: &UserId) -> OwnedByUser {
    let shared = sandboxes::owner.gt(format!("{user} "));
    let shared = shared.and(sandboxes::owner.lt(format!("{user}!")));
    Box::new(sandboxes::owner.eq(user.to_string()).or(shared))
}

type OwnedByUser = Box<dyn BoxableExpression<sandboxes::table, AnyBackend, SqlType = Bool>>;

/// Returns an error if one more running sandbox of this user would exceed a cap.
pub(super) fn check_caps(
    conn: &mut AnyConnection,
    user: &UserId,
    caps: SandboxCaps,
) -> Result<(), TransactionError> {
    let counted = || {
        sandboxes::table
            .into_boxed::<AnyBackend>()
            .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
            .filter(sandboxes::status.eq_any([
                SandboxStatus::Starting.as_str(),
                SandboxStatus::Running.as_str(),
            ]))
    };
    let of_user: i64 = counted()
        .filter(owned_by_user(user))
        .count()
        .get_result(conn)?;
    if of_user >= i64::from(caps.per_user) {
        return Err(StoreError::CapReached(ReachedCap::PerUser(caps.per_user)).into());
    }
    let overall: i64 = counted().count().get_result(conn)?;
    if overall >= i64::from(caps.overall) {
        return Err(StoreError::CapReached(ReachedCap::Overall(caps.overall)).into());
    }
    Ok(())
}
