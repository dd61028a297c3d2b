//! Inserts a start task, assigns its sandbox, and stores its idempotent response.

use diesel::prelude::*;
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::IdempotencyCheck;
use domain::error::{Entity, ReachedCap, StoreError};
use domain::sandbox::{DesiredState, SandboxCaps, SandboxStatus};
use domain::start_task::{
    MAX_UNFINISHED_STARTS, NewStartTask, SandboxAssignment, StartStatus, StartTask,
    StartTaskInsertOutcome,
};

use super::rows::{ENTITY, StartTaskRow};
use crate::conversations::rows as conversations;
use crate::database::changes::announce;
use crate::database::connection::AnyConnection;
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation, not_found};
use crate::idempotency;
use crate::sandboxes::occupancy::check_room;
use crate::sandboxes::{insert_within_caps, load_undeleted, resume};
use crate::schema::column_types::UuidCol;
use crate::schema::start_tasks;

/// The task of the same owner for this conversation id, if there is one that did not fail. `Conflict` if the id is taken in
/// another way.
fn find_existing(
    conn: &mut AnyConnection,
    task: &StartTask,
) -> Result<Option<StartTask>, TransactionError> {
    if conversations::is_deleted(conn, task.conversation_id)? {
        return Err(conflict(Entity::Conversation));
    }
    let row = start_tasks::table
        .filter(start_tasks::conversation_id.eq(UuidCol::from(task.conversation_id)))
        .filter(start_tasks::status.ne(StartStatus::Error.as_str()))
        .select(StartTaskRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(ENTITY)?;
    if let Some(row) = row {
        let existing = StartTask::from(row);
        return if existing.owner == task.owner {
            Ok(Some(existing))
        } else {
            Err(conflict(Entity::Conversation))
        };
    }
    // The conversation was adopted or belongs to another user, so there is no task to return.
    match conversations::load(conn, task.conversation_id)? {
        Some(_) => Err(conflict(Entity::Conversation)),
        None => Ok(None),
    }
}

/// Stores, resumes or checks the sandbox of a start. See [`SandboxAssignment`].
fn assign_sandbox(
    conn: &mut AnyConnection,
    start: &NewStartTask,
    caps: SandboxCaps,
) -> Result<(), TransactionError> {
    let task = &start.task;
    if let SandboxAssignment::New(sandbox) = &start.assignment {
        return insert_within_caps(conn, sandbox, caps);
    }
    let sandbox = load_undeleted(conn, &task.sandbox_id)?
        .filter(|sandbox| sandbox.owner == task.owner)
        .ok_or_else(|| not_found(Entity::Sandbox))?;
    let should_run = sandbox.desired == DesiredState::Running;
    match start.assignment {
        SandboxAssignment::Shared { .. }
            if !should_run || sandbox.status != SandboxStatus::Running =>
        {
            Err(not_found(Entity::Sandbox))
        }
        SandboxAssignment::Shared { max_conversations } => {
            check_room(conn, &sandbox.id, max_conversations)
        }
        _ if should_run && sandbox.status.is_up() => Ok(()),
        _ => resume(conn, sandbox, caps, task.created_at).map(drop),
    }
}

pub(super) fn insert(
    conn: &mut AnyConnection,
    start: &NewStartTask,
    caps: SandboxCaps,
) -> Result<StartTaskInsertOutcome, TransactionError> {
    let task = &start.task;
    if let Some(response) = &start.response {
        let checked = idempotency::check(conn, &response.request)?;
        if checked != IdempotencyCheck::New {
            return Ok(StartTaskInsertOutcome::KeyUsed(checked));
        }
    }
    if let Some(existing) = find_existing(conn, task)? {
        return Ok(StartTaskInsertOutcome::Existing(existing));
    }
    let unfinished: i64 = start_tasks::table
        .filter(start_tasks::owner.eq(task.owner.as_str()))
        .filter(start_tasks::is_open)
        .count()
        .get_result(conn)?;
    if unfinished >= i64::from(MAX_UNFINISHED_STARTS) {
        return Err(StoreError::CapReached(ReachedCap::Starts(MAX_UNFINISHED_STARTS)).into());
    }
    if let Some(parent) = task.request.parent_conversation_id {
        conversations::load(conn, parent)?
            .filter(|parent| parent.owner.0 == task.owner)
            .ok_or_else(|| not_found(Entity::ParentConversation))?;
    }
    assign_sandbox(conn, start, caps)?;
    diesel::insert_into(start_tasks::table)
        .values(StartTaskRow::from(task))
        .execute(conn)
        .map_err(map_unique_violation(conflict(ENTITY)))?;
    if let Some(response) = &start.response {
        idempotency::store_response(conn, response)?;
    }
    announce(conn, &StoreChange::StartTaskQueued(task.host.clone()))?;
    Ok(StartTaskInsertOutcome::New)
}
