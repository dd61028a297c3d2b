//! Inserts a start task with its place in a sandbox, and its idempotent response.

use diesel::prelude::*;
use domain::change::StoreChange;
use domain::error::{ReachedCap, StoreError};
use domain::idempotency::IdempotencyCheck;
use domain::sandbox::{DesiredState, SandboxCaps, SandboxStatus};
use domain::start_task::{
    MAX_UNFINISHED_STARTS, NewStartTask, PARENT_CONVERSATION_ENTITY, SandboxAssignment,
    StartStatus, StartTask, StartTaskInsertOutcome,
};

use super::rows::StartTaskRow;
use crate::conversations::rows as conversations;
use crate::database::changes::announce;
use crate::database::connection::AnyConnection;
use crate::error::{TransactionError, conflict, not_found};
use crate::idempotency;
use crate::sandboxes::occupancy::check_room;
use crate::sandboxes::{insert_within_caps, load_wanted, resume};
use crate::schema::column_types::UuidCol;
use crate::schema::start_tasks;

/// The earlier task of a start whose conversation id already exists.
fn previous(
    conn: &mut AnyConnection,
    task: &StartTask,
) -> Result<Option<StartTask>, TransactionError> {
    if conversations::is_deleted(conn, task.conversation_id)? {
        return Err(conflict("conversation"));
    }
    let row = start_tasks::table
        .filter(start_tasks::conversation_id.eq(UuidCol::from(task.conversation_id)))
        .filter(start_tasks::status.ne(StartStatus::Error.as_str()))
        .select(StartTaskRow::as_select())
        .first(conn)
        .optional()?;
    if let Some(row) = row {
        let found = StartTask::try_from(row)?;
        return if found.owner == task.owner {
            Ok(Some(found))
        } else {
            Err(conflict("conversation"))
        };
    }
    // The conversation was adopted or belongs to another user, so there is no task to return.
    match conversations::load(conn, task.conversation_id)? {
        Some(_) => Err(conflict("conversation")),
        None => Ok(None),
    }
}

fn take_place(
    conn: &mut AnyConnection,
    start: &NewStartTask,
    caps: SandboxCaps,
) -> Result<(), TransactionError> {
    let task = &start.task;
    if let SandboxAssignment::New(sandbox) = &start.assignment {
        return insert_within_caps(conn, sandbox, caps);
    }
    let sandbox = load_wanted(conn, &task.sandbox_id)?
        .filter(|sandbox| sandbox.owner == task.owner)
        .ok_or_else(|| not_found("sandbox"))?;
    let runs = sandbox.desired == DesiredState::Running;
    match start.assignment {
        SandboxAssignment::Shared { .. } if !runs || sandbox.status != SandboxStatus::Running => {
            Err(not_found("sandbox"))
        }
        SandboxAssignment::Shared { max_conversations } => {
            check_room(conn, &sandbox.id, max_conversations)
        }
        _ if runs && sandbox.status.is_up() => Ok(()),
        _ => resume(conn, sandbox, caps, task.created_at).map(drop),
    }
}

pub(super) fn insert(
    conn: &mut AnyConnection,
    start: &NewStartTask,
    caps: SandboxCaps,
) -> Result<StartTaskInsertOutcome, TransactionError> {
    let task = &start.task;
    if let Some(answer) = &start.answer {
        let known = idempotency::repetition(conn, &answer.request)?;
        if known != IdempotencyCheck::New {
            return Ok(StartTaskInsertOutcome::KeyUsed(known));
        }
    }
    if let Some(found) = previous(conn, task)? {
        return Ok(StartTaskInsertOutcome::Existing(found));
    }
    let open: i64 = start_tasks::table
        .filter(start_tasks::owner.eq(task.owner.as_str()))
        .filter(start_tasks::is_open)
        .count()
        .get_result(conn)?;
    if open >= i64::from(MAX_UNFINISHED_STARTS) {
        return Err(StoreError::CapReached(ReachedCap::Starts(MAX_UNFINISHED_STARTS)).into());
    }
    if let Some(parent) = task.request.parent_conversation_id {
        conversations::load(conn, parent)?
            .filter(|it| it.owner.0 == task.owner)
            .ok_or_else(|| not_found(PARENT_CONVERSATION_ENTITY))?;
    }
    take_place(conn, start, caps)?;
    diesel::insert_into(start_tasks::table)
        .values(StartTaskRow::try_from(task)?)
        .execute(conn)
        .map_err(TransactionError::taken("start task"))?;
    if let Some(answer) = &start.answer {
        idempotency::keep(conn, answer)?;
    }
    announce(conn, &StoreChange::StartTaskQueued(task.host.clone()))?;
    Ok(StartTaskInsertOutcome::New)
}
