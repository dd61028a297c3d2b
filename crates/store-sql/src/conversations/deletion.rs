//! Deletes conversations with their dependents and finds sandboxes that become unused. Runs in the caller's transaction.

use std::collections::{BTreeMap, HashSet};

use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::id::ConversationId;

use crate::database::connection::{AnyBackend, AnyConnection, on_backend};
use crate::error::TransactionError;
use crate::sandboxes::mark_deleted;
use crate::schema::column_types::{TimestampCol, UuidCol};
use crate::schema::{conversations, deleted_conversations, pending_messages, start_tasks};
use crate::start_tasks::rows::StepColumns;

/// Maximum rows of one statement, below the parameter limits of both databases.
pub(crate) const DELETION_BATCH_ROWS: usize = 1_000;

/// Detail of a start task whose conversation was deleted; clients can read it.
const DELETED_DURING_START: &str = "The conversation was deleted before its start had ended.";

/// Deletes the conversation and all its descendants, records their ids, and marks unused sandboxes as deleted. See
/// `ConversationRepository::delete`.
pub(crate) fn delete_tree(
    conn: &mut AnyConnection,
    root: ConversationId,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let (owner, tree) = descendants(conn, root)?;
    let ids: Vec<UuidCol> = tree.keys().copied().collect();
    for batch in ids.chunks(DELETION_BATCH_ROWS) {
        let messages = pending_messages::table
            .filter(pending_messages::conversation_id.eq_any(batch))
            .filter(pending_messages::owner.eq(&owner));
        diesel::delete(messages).execute(conn)?;
        end_start_tasks(conn, &owner, batch, at)?;
        // ON DELETE CASCADE deletes the events.
        diesel::delete(conversations::table.filter(conversations::id.eq_any(batch)))
            .execute(conn)?;
    }
    let sandboxes: HashSet<&String> = tree.values().collect();
    let sandboxes: Vec<String> = sandboxes.into_iter().cloned().collect();
    let unneeded = unneeded_sandboxes(conn, &sandboxes)?;
    mark_deleted(conn, &unneeded, at)?;

    let records: Vec<_> = tree
        .iter()
        .map(|(id, sandbox)| {
            (
                deleted_conversations::id.eq(id),
                deleted_conversations::sandbox_id.eq(sandbox.as_str()),
                deleted_conversations::deleted_at.eq(TimestampCol(at)),
                // Deleting a sandbox also deletes the data of its agent server.
                deleted_conversations::pending.eq(!unneeded.contains(sandbox)),
            )
        })
        .collect();
    for batch in records.chunks(DELETION_BATCH_ROWS) {
        on_backend!(&mut *conn, |c| diesel::insert_into(
            deleted_conversations::table
        )
        .values(batch)
        .execute(c)?);
    }
    Ok(())
}

/// The owner of the conversation, and its descendants of that owner with their sandboxes. Terminates on cyclic parents.
fn descendants(
    conn: &mut AnyConnection,
    root: ConversationId,
) -> Result<(String, BTreeMap<UuidCol, String>), TransactionError> {
    let (id, owner, sandbox): (UuidCol, String, String) = conversations::table
        .find(UuidCol::from(root))
        .select((
            conversations::id,
            conversations::owner,
            conversations::sandbox_id,
        ))
        .first(conn)?;
    let mut tree = BTreeMap::from([(id, sandbox)]);
    let mut level = vec![id];
    while !level.is_empty() {
        let mut next = Vec::new();
        for batch in level.chunks(DELETION_BATCH_ROWS) {
            let children: Vec<(UuidCol, String)> = conversations::table
                .filter(conversations::parent.eq_any(batch))
                .filter(conversations::owner.eq(&owner))
                .select((conversations::id, conversations::sandbox_id))
                .load(conn)?;
            for (id, sandbox) in children {
                if tree.insert(id, sandbox).is_none() {
                    next.push(id);
                }
            }
        }
        level = next;
    }
    Ok((owner, tree))
}

/// Deletes finished start tasks and fails unfinished ones, so that workers and subscribers notice. Only tasks of the owner:
/// another user may have a failed task with the same id.
fn end_start_tasks(
    conn: &mut AnyConnection,
    owner: &str,
    conversations: &[UuidCol],
    at: Timestamp,
) -> Result<(), TransactionError> {
    diesel::delete(
        start_tasks::table
            .filter(start_tasks::conversation_id.eq_any(conversations))
            .filter(start_tasks::owner.eq(owner))
            .filter(diesel::dsl::not(start_tasks::is_open)),
    )
    .execute(conn)?;
    let unfinished = start_tasks::table
        .filter(start_tasks::conversation_id.eq_any(conversations))
        .filter(start_tasks::owner.eq(owner));
    diesel::update(unfinished)
        .set((
            StepColumns::failure(DELETED_DURING_START, at),
            // The worker that holds the lease can no longer write.
            start_tasks::fence.eq(start_tasks::fence + 1),
        ))
        .execute(conn)?;
    Ok(())
}

/// Whether a conversation of this sandbox was deleted since the given time.
pub(crate) fn has_deletion_since(
    conn: &mut AnyConnection,
    sandbox: &str,
    since: Timestamp,
) -> Result<bool, TransactionError> {
    let records = deleted_conversations::table
        .filter(deleted_conversations::sandbox_id.eq(sandbox))
        .filter(deleted_conversations::deleted_at.ge(TimestampCol(since)));
    Ok(diesel::select(diesel::dsl::exists(records)).get_result(conn)?)
}

/// The sandboxes among these that no conversation and no unfinished start task uses.
pub(crate) fn unneeded_sandboxes(
    conn: &mut AnyConnection,
    sandboxes: &[String],
) -> Result<Vec<String>, TransactionError> {
    let mut needed: HashSet<String> = HashSet::new();
    for batch in sandboxes.chunks(DELETION_BATCH_ROWS) {
        needed.extend(
            conversations::table
                .into_boxed::<AnyBackend>()
                .filter(conversations::sandbox_id.eq_any(batch))
                .select(conversations::sandbox_id)
                .distinct()
                .load::<String>(conn)?,
        );
        needed.extend(
            start_tasks::table
                .into_boxed::<AnyBackend>()
                .filter(start_tasks::sandbox_id.eq_any(batch))
                .filter(start_tasks::is_open)
                .select(start_tasks::sandbox_id)
                .distinct()
                .load::<String>(conn)?,
        );
    }
    Ok(sandboxes
        .iter()
        .filter(|id| !needed.contains(*id))
        .cloned()
        .collect())
}
