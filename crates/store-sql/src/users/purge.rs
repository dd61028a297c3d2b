//! Deletes a user's rows: the steps of `UserRepository::purge`, in the caller's transaction.

use diesel::dsl::{exists, not, select};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::identity::PurgeCounts;
use domain::sandbox::DesiredState;
use domain::start_task::StartStatus;

use crate::conversations::deletion::DELETION_BATCH_ROWS;
use crate::conversations::pending_messages::forget_orphans;
use crate::database::changes::announce;
use crate::database::connection::{Any, AnyConnection};
use crate::error::TransactionError;
use crate::events::octet_length;
use crate::sandboxes::mark_deleted;
use crate::schema::column_types::{TimestampCol, UuidCol};
use crate::schema::{
    api_keys, conversations, deleted_conversations, events, idempotency_keys, pending_messages,
    sandboxes, secrets, settings, start_tasks,
};

/// Detail of a start task whose owner was deleted; clients can read it.
const DELETED_DURING_START: &str = "The user was deleted before the start had ended.";

/// Whether the query finds a row.
macro_rules! finds {
    ($conn:expr, $query:expr) => {
        select(exists($query)).get_result::<bool>($conn)?
    };
}

/// Whether the user has rows other than sandboxes marked as deleted.
pub(crate) fn has_rows(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    let wanted = sandboxes::table
        .filter(sandboxes::owner.eq(user))
        .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()));
    Ok(finds!(
        conn,
        conversations::table.filter(conversations::owner.eq(user))
    ) || finds!(
        conn,
        pending_messages::table.filter(pending_messages::owner.eq(user))
    ) || finds!(conn, start_tasks::table.filter(start_tasks::owner.eq(user)))
        || finds!(
            conn,
            idempotency_keys::table.filter(idempotency_keys::owner.eq(user))
        )
        || finds!(conn, api_keys::table.filter(api_keys::user_id.eq(user)))
        || finds!(conn, settings::table.filter(settings::owner.eq(user)))
        || finds!(conn, secrets::table.filter(secrets::owner.eq(user)))
        || finds!(conn, wanted))
}

/// Whether no row of the user is left.
pub(crate) fn is_gone(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    let sandboxes = sandboxes::table.filter(sandboxes::owner.eq(user));
    Ok(!has_rows(conn, user)? && !finds!(conn, sandboxes))
}

/// Deletes a bounded number of rows of a user who is marked as deleted.
pub(crate) fn purge(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
    limit: usize,
) -> Result<PurgeCounts, TransactionError> {
    let mut purged = erase_access(conn, user, at)?;
    let mut left = Budget(limit.max(1));
    purged.others = purge_responses(conn, user, &mut left)?
        + purge_pending_messages(conn, user, &mut left)?
        + purge_deletion_records(conn, user, &mut left)?;
    purged.start_tasks = purge_start_tasks(conn, user, &mut left)?;
    (purged.conversations, purged.events) = purge_conversations(conn, user, &mut left)?;
    purged.more = left.0 == 0;
    Ok(purged)
}

/// Rows that may still be deleted in this call.
struct Budget(usize);

impl Budget {
    fn limit(&self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    fn spend(&mut self, rows: usize) -> u64 {
        self.0 = self.0.saturating_sub(rows);
        rows as u64
    }
}

/// Deletes all keys, settings and secrets, marks sandboxes as deleted and fails unfinished starts, in one call.
pub(crate) fn erase_access(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let keys = api_keys::table.filter(api_keys::user_id.eq(user));
    let api_keys = diesel::delete(keys).execute(conn)?;
    let settings = diesel::delete(settings::table.find(user)).execute(conn)?;
    let theirs = secrets::table.filter(secrets::owner.eq(user));
    let secrets = diesel::delete(theirs).execute(conn)?;
    end_starts(conn, user, at)?;
    let wanted: Vec<String> = sandboxes::table
        .filter(sandboxes::owner.eq(user))
        .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()))
        .select(sandboxes::id)
        .load(conn)?;
    for part in wanted.chunks(DELETION_BATCH_ROWS) {
        mark_deleted(conn, part, at)?;
    }
    Ok(PurgeCounts {
        api_keys: api_keys as u64,
        settings: settings as u64,
        secrets: secrets as u64,
        sandboxes: wanted.len() as u64,
        ..PurgeCounts::default()
    })
}

/// Fails unfinished start tasks, so that workers and subscribers notice.
fn end_starts(conn: &mut AnyConnection, user: &str, at: Timestamp) -> Result<(), TransactionError> {
    let open: Vec<UuidCol> = start_tasks::table
        .filter(start_tasks::owner.eq(user))
        .filter(start_tasks::is_open)
        .select(start_tasks::id)
        .load(conn)?;
    for part in open.chunks(DELETION_BATCH_ROWS) {
        diesel::update(start_tasks::table.filter(start_tasks::id.eq_any(part)))
            .set((
                start_tasks::status.eq(StartStatus::Error.as_str()),
                start_tasks::detail.eq(DELETED_DURING_START),
                start_tasks::sealed_secrets.eq(None::<String>),
                start_tasks::is_open.eq(false),
                start_tasks::lease_until.eq(None::<TimestampCol>),
                start_tasks::fence.eq(start_tasks::fence + 1),
                start_tasks::updated_at.eq(TimestampCol(at)),
            ))
            .execute(conn)?;
    }
    for id in open {
        announce(conn, &domain::change::StoreChange::StartTask(id.into()))?;
    }
    Ok(())
}

/// Deletes stored responses to requests with an idempotency key.
fn purge_responses(
    conn: &mut AnyConnection,
    user: &str,
    left: &mut Budget,
) -> Result<u64, TransactionError> {
    let keys: Vec<String> = idempotency_keys::table
        .filter(idempotency_keys::owner.eq(user))
        .select(idempotency_keys::key)
        .limit(left.limit())
        .load(conn)?;
    for part in keys.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(
            idempotency_keys::table
                .filter(idempotency_keys::owner.eq(user))
                .filter(idempotency_keys::key.eq_any(part)),
        )
        .execute(conn)?;
    }
    Ok(left.spend(keys.len()))
}

/// Deletes pending messages.
fn purge_pending_messages(
    conn: &mut AnyConnection,
    user: &str,
    left: &mut Budget,
) -> Result<u64, TransactionError> {
    let ids: Vec<UuidCol> = pending_messages::table
        .filter(pending_messages::owner.eq(user))
        .select(pending_messages::id)
        .limit(left.limit())
        .load(conn)?;
    for part in ids.chunks(DELETION_BATCH_ROWS) {
        let theirs = pending_messages::table.filter(pending_messages::id.eq_any(part));
        diesel::delete(theirs).execute(conn)?;
    }
    Ok(left.spend(ids.len()))
}

/// Deletes records of earlier deleted conversations in the user's sandboxes. Other records do not name an owner.
fn purge_deletion_records(
    conn: &mut AnyConnection,
    user: &str,
    left: &mut Budget,
) -> Result<u64, TransactionError> {
    let ids: Vec<UuidCol> = sandboxes::table
        .inner_join(
            deleted_conversations::table.on(deleted_conversations::sandbox_id.eq(sandboxes::id)),
        )
        .filter(sandboxes::owner.eq(user))
        .select(deleted_conversations::id)
        .limit(left.limit())
        .load(conn)?;
    for part in ids.chunks(DELETION_BATCH_ROWS) {
        let theirs = deleted_conversations::table.filter(deleted_conversations::id.eq_any(part));
        diesel::delete(theirs).execute(conn)?;
    }
    Ok(left.spend(ids.len()))
}

fn purge_start_tasks(
    conn: &mut AnyConnection,
    user: &str,
    left: &mut Budget,
) -> Result<u64, TransactionError> {
    let ids: Vec<UuidCol> = start_tasks::table
        .filter(start_tasks::owner.eq(user))
        .select(start_tasks::id)
        .limit(left.limit())
        .load(conn)?;
    for part in ids.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(start_tasks::table.filter(start_tasks::id.eq_any(part))).execute(conn)?;
    }
    Ok(left.spend(ids.len()))
}

/// Deletes events and conversations, and returns their numbers. A conversation is deleted with its last batch of events.
fn purge_conversations(
    conn: &mut AnyConnection,
    user: &str,
    left: &mut Budget,
) -> Result<(u64, u64), TransactionError> {
    let ids: Vec<UuidCol> = conversations::table
        .filter(conversations::owner.eq(user))
        .select(conversations::id)
        .limit(left.limit())
        .load(conn)?;
    let (mut emptied, mut count) = (Vec::new(), 0);
    for id in ids {
        let part: Vec<(i64, i32)> = events::table
            .filter(events::conversation_id.eq(id))
            .order(events::seq.asc())
            .select((events::seq, octet_length(events::body)))
            .limit(left.limit())
            .load(conn)?;
        if let Some((last, _)) = part.last() {
            let gone = events::table.filter(events::conversation_id.eq(id));
            diesel::delete(gone.filter(events::seq.le(*last))).execute(conn)?;
            let bytes: i64 = part.iter().map(|(_, bytes)| i64::from(*bytes)).sum();
            let number = i64::try_from(part.len()).unwrap_or(i64::MAX);
            diesel::update(conversations::table.find(id))
                .set((
                    conversations::event_count.eq(conversations::event_count - number),
                    conversations::event_bytes.eq(conversations::event_bytes - bytes),
                ))
                .execute(conn)?;
        }
        count += left.spend(part.len());
        if left.0 == 0 {
            break;
        }
        left.spend(1);
        emptied.push(id);
        if left.0 == 0 {
            break;
        }
    }
    for part in emptied.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(conversations::table.filter(conversations::id.eq_any(part)))
            .execute(conn)?;
    }
    Ok((emptied.len() as u64, count))
}

/// Deletes old finished start tasks, see `StartTaskRepository::prune`.
pub(crate) fn prune_start_tasks(
    conn: &mut AnyConnection,
    before: Timestamp,
    limit: usize,
) -> Result<u64, TransactionError> {
    let sandbox = sandboxes::table
        .filter(sandboxes::id.eq(start_tasks::sandbox_id))
        .select(sandboxes::id);
    let old: Vec<(UuidCol, UuidCol)> = start_tasks::table
        .into_boxed::<Any>()
        .filter(not(start_tasks::is_open))
        .filter(start_tasks::updated_at.lt(TimestampCol(before)))
        .filter(
            start_tasks::status
                .ne(StartStatus::Error.as_str())
                .or(not(exists(sandbox))),
        )
        .order((start_tasks::updated_at.asc(), start_tasks::id.asc()))
        .limit(i64::try_from(limit).unwrap_or(i64::MAX))
        .select((start_tasks::id, start_tasks::conversation_id))
        .load(conn)?;
    let (ids, conversations): (Vec<UuidCol>, Vec<UuidCol>) = old.into_iter().unzip();
    for part in ids.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(start_tasks::table.filter(start_tasks::id.eq_any(part))).execute(conn)?;
    }
    forget_orphans(conn, &conversations)?;
    Ok(ids.len() as u64)
}

/// Deletes old records of deleted conversations, see `ConversationRepository::prune_deleted`.
pub(crate) fn prune_deletion_records(
    conn: &mut AnyConnection,
    before: Timestamp,
    limit: usize,
) -> Result<u64, TransactionError> {
    use crate::schema::deleted_conversations as memory;
    let sandbox = sandboxes::table
        .filter(sandboxes::id.eq(memory::sandbox_id))
        .select(sandboxes::id);
    let ids: Vec<UuidCol> = memory::table
        .filter(memory::deleted_at.lt(TimestampCol(before)))
        .filter(not(exists(sandbox)))
        .order((memory::deleted_at.asc(), memory::id.asc()))
        .limit(i64::try_from(limit).unwrap_or(i64::MAX))
        .select(memory::id)
        .load(conn)?;
    for part in ids.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(memory::table.filter(memory::id.eq_any(part))).execute(conn)?;
    }
    Ok(ids.len() as u64)
}
