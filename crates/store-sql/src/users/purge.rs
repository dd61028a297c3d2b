//! Deletes the rows of users and of their memberships (the steps of `UserRepository::purge` and
//! `OrganizationDeletionRepository::purge`), in the caller's transaction.

use diesel::dsl::{exists, select};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::change::StoreChange;
use domain::sandbox::{DesiredState, Sandbox};
use domain::user::identity::PurgeCounts;

use crate::conversations::deletion::DELETION_BATCH_ROWS;
use crate::database::changes::announce;
use crate::database::connection::AnyConnection;
use crate::error::TransactionError;
use crate::events::octet_length;
use crate::queries::delete_rows::delete_of_user;
use crate::sandboxes::rows::SandboxRow;
use crate::sandboxes::{self as sandbox_rows, mark_deleted};
use crate::schema::codec::row_limit;
use crate::schema::column_types::UuidCol;
use crate::schema::{
    api_keys, conversations, egress_requests, events, idempotency_keys, identities,
    model_reservations, model_spending, one_time_links, pending_messages, sandboxes, secrets,
    sessions, settings, start_tasks, users,
};
use crate::start_tasks::rows::StepColumns;
use crate::users::organizations::owners_of_user;
use crate::users::{device_logins, organizations, passwords};

/// Detail of a start task whose owner was deleted; clients can read it.
const DELETED_DURING_START: &str = "The user was deleted before the start had ended.";

/// Detail of a start task whose owner lost access; clients can read it.
const ACCESS_ENDED: &str = "The user's access ended before the start had ended.";

/// Table, primary key and condition of rows that [`PurgeCounts::others`] counts. Records of deleted conversations do not name
/// an owner, but a sandbox.
const OTHER_ROWS: [(&str, &str, &str); 6] = [
    ("idempotency_keys", "owner, key", "owner = $1"),
    ("pending_messages", "id", "owner = $1"),
    ("egress_requests", "id", "owner = $1"),
    ("model_reservations", "id", "owner = $1"),
    (
        "model_spending",
        "owner, day, conversation, model",
        "owner = $1",
    ),
    (
        "deleted_conversations",
        "id",
        "sandbox_id IN (SELECT id FROM sandboxes WHERE owner = $1)",
    ),
];

/// Whether one of these queries finds a row.
macro_rules! has_row {
    ($conn:ident, $($query:expr),+ $(,)?) => {
        $(select(exists($query)).get_result::<bool>($conn)?)||+
    };
}

/// Whether the user has rows other than sandboxes marked as deleted.
pub(crate) fn has_rows(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    let has_credentials = has_row!(
        conn,
        api_keys::table.filter(api_keys::user_id.eq(user)),
        sessions::table.filter(sessions::user_id.eq(user)),
        one_time_links::table.filter(one_time_links::user_id.eq(user)),
        identities::table.filter(identities::user_id.eq(user)),
    );
    let owners = owners_of_user(conn, user)?;
    Ok(has_credentials || has_owned_rows(conn, &owners)?)
}

/// Whether these owners have rows other than sandboxes marked as deleted.
fn has_owned_rows(conn: &mut AnyConnection, owners: &[String]) -> Result<bool, TransactionError> {
    for owner in owners {
        let has_rows = has_row!(
            conn,
            conversations::table.filter(conversations::owner.eq(owner)),
            pending_messages::table.filter(pending_messages::owner.eq(owner)),
            egress_requests::table.filter(egress_requests::owner.eq(owner)),
            start_tasks::table.filter(start_tasks::owner.eq(owner)),
            idempotency_keys::table.filter(idempotency_keys::owner.eq(owner)),
            model_reservations::table.filter(model_reservations::owner.eq(owner)),
            model_spending::table.filter(model_spending::owner.eq(owner)),
            settings::table.filter(settings::owner.eq(owner)),
            secrets::table.filter(secrets::owner.eq(owner)),
            sandboxes::table
                .filter(sandboxes::owner.eq(owner))
                .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str())),
        );
        if has_rows {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether no row of these owners is left.
pub(crate) fn is_owner_purged(
    conn: &mut AnyConnection,
    owners: &[String],
) -> Result<bool, TransactionError> {
    let sandboxes = sandboxes::table.filter(sandboxes::owner.eq_any(owners));
    Ok(!has_owned_rows(conn, owners)? && !has_row!(conn, sandboxes))
}

/// Whether no row of the user is left.
pub(crate) fn is_purged(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    let owners = owners_of_user(conn, user)?;
    Ok(!has_rows(conn, user)? && is_owner_purged(conn, &owners)?)
}

/// Deletes a bounded number of rows of a user who is marked as deleted.
pub(crate) fn purge(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
    limit: usize,
) -> Result<PurgeCounts, TransactionError> {
    let mut purged = erase_access(conn, user, at)?;
    let owners = owners_of_user(conn, user)?;
    purged += purge_owned(conn, &owners, limit)?;
    Ok(purged)
}

/// Deletes a bounded number of rows of these owners, after [`erase_owned`].
pub(crate) fn purge_owned(
    conn: &mut AnyConnection,
    owners: &[String],
    limit: usize,
) -> Result<PurgeCounts, TransactionError> {
    let mut purged = PurgeCounts::default();
    let mut budget = Budget(limit.max(1));
    for owner in owners {
        for rows in OTHER_ROWS {
            let deleted = delete_of_user(conn, rows, owner, budget.limit())?;
            purged.others += budget.spend(deleted);
        }
        let start_tasks = ("start_tasks", "id", "owner = $1");
        let deleted = delete_of_user(conn, start_tasks, owner, budget.limit())?;
        purged.start_tasks += budget.spend(deleted);
        let (conversations, events) = purge_conversations(conn, owner, &mut budget)?;
        purged.conversations += conversations;
        purged.events += events;
        if budget.0 == 0 {
            break;
        }
    }
    purged.more = budget.0 == 0;
    Ok(purged)
}

/// Rows that may still be deleted in this call.
struct Budget(usize);

impl Budget {
    fn limit(&self) -> i64 {
        row_limit(self.0)
    }

    fn spend(&mut self, rows: usize) -> u64 {
        self.0 = self.0.saturating_sub(rows);
        rows as u64
    }
}

/// Deletes all keys, sessions, links, settings and secrets and the password, ends the memberships, marks sandboxes as deleted and
/// fails unfinished starts, whatever the limit.
pub(crate) fn erase_access(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let keys = api_keys::table.filter(api_keys::user_id.eq(user));
    let api_keys = diesel::delete(keys).execute(conn)?;
    erase_sign_in(conn, user)?;
    organizations::end_memberships_of_user(conn, user, at)?;
    let owners = owners_of_user(conn, user)?;
    Ok(PurgeCounts {
        api_keys: api_keys as u64,
        ..erase_owned(conn, &owners, at)?
    })
}

/// Removes all means by which a user signs in.
fn erase_sign_in(conn: &mut AnyConnection, user: &str) -> Result<(), TransactionError> {
    crate::users::sessions::end_others(conn, user, None)?;
    crate::users::identities::erase(conn, user)?;
    device_logins::erase(conn, user)?;
    passwords::delete_links(conn, user)?;
    diesel::update(users::table.find(user))
        .set(users::password_hash.eq(None::<String>))
        .execute(conn)?;
    Ok(())
}

/// Deletes settings and secrets of these owners, marks sandboxes as deleted and fails unfinished starts, whatever the limit.
pub(crate) fn erase_owned(
    conn: &mut AnyConnection,
    owners: &[String],
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let settings = settings::table.filter(settings::owner.eq_any(owners));
    let settings = diesel::delete(settings).execute(conn)?;
    let secrets = secrets::table.filter(secrets::owner.eq_any(owners));
    let secrets = diesel::delete(secrets).execute(conn)?;
    fail_starts(conn, owners, DELETED_DURING_START, at)?;
    let sandboxes: Vec<String> = sandboxes::table
        .filter(sandboxes::owner.eq_any(owners))
        .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()))
        .select(sandboxes::id)
        .load(conn)?;
    for batch in sandboxes.chunks(DELETION_BATCH_ROWS) {
        mark_deleted(conn, batch, at)?;
    }
    Ok(PurgeCounts {
        settings: settings as u64,
        secrets: secrets as u64,
        sandboxes: sandboxes.len() as u64,
        ..PurgeCounts::default()
    })
}

/// Fails unfinished starts and pauses running sandboxes of owners who lost access.
pub(crate) fn suspend(
    conn: &mut AnyConnection,
    owners: &[String],
    at: Timestamp,
) -> Result<(), TransactionError> {
    fail_starts(conn, owners, ACCESS_ENDED, at)?;
    let running: Vec<SandboxRow> = sandboxes::table
        .filter(sandboxes::owner.eq_any(owners))
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .select(SandboxRow::as_select())
        .load(conn)?;
    for row in running {
        let mut sandbox = Sandbox::from(row);
        sandbox.desired = DesiredState::Paused;
        sandbox.paused_at = Some(at);
        sandbox.updated_at = at;
        sandbox_rows::save(conn, &sandbox)?;
    }
    Ok(())
}

/// Fails unfinished start tasks, so that workers and subscribers notice.
fn fail_starts(
    conn: &mut AnyConnection,
    owners: &[String],
    detail: &str,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let unfinished: Vec<UuidCol> = start_tasks::table
        .filter(start_tasks::owner.eq_any(owners))
        .filter(start_tasks::is_open)
        .select(start_tasks::id)
        .load(conn)?;
    for batch in unfinished.chunks(DELETION_BATCH_ROWS) {
        diesel::update(start_tasks::table.filter(start_tasks::id.eq_any(batch)))
            .set((
                StepColumns::failure(detail, at),
                // The worker that holds the lease can no longer write.
                start_tasks::fence.eq(start_tasks::fence + 1),
            ))
            .execute(conn)?;
    }
    for id in unfinished {
        announce(conn, &StoreChange::StartTask(id.into()))?;
    }
    Ok(())
}

/// Deletes events and conversations, and returns their numbers. A conversation is deleted with its last batch of events.
fn purge_conversations(
    conn: &mut AnyConnection,
    user: &str,
    budget: &mut Budget,
) -> Result<(u64, u64), TransactionError> {
    let ids: Vec<UuidCol> = conversations::table
        .filter(conversations::owner.eq(user))
        .select(conversations::id)
        .limit(budget.limit())
        .load(conn)?;
    let (mut emptied, mut deleted_events) = (Vec::new(), 0);
    for id in ids {
        let batch: Vec<(i64, i32)> = events::table
            .filter(events::conversation_id.eq(id))
            .order(events::seq.asc())
            .select((events::seq, octet_length(events::body)))
            .limit(budget.limit())
            .load(conn)?;
        if let Some((last, _)) = batch.last() {
            let log = events::table.filter(events::conversation_id.eq(id));
            diesel::delete(log.filter(events::seq.le(*last))).execute(conn)?;
            let bytes: i64 = batch.iter().map(|(_, bytes)| i64::from(*bytes)).sum();
            let count = row_limit(batch.len());
            diesel::update(conversations::table.find(id))
                .set((
                    conversations::event_count.eq(conversations::event_count - count),
                    conversations::event_bytes.eq(conversations::event_bytes - bytes),
                ))
                .execute(conn)?;
        }
        deleted_events += budget.spend(batch.len());
        if budget.0 == 0 {
            break;
        }
        budget.spend(1);
        emptied.push(id);
        if budget.0 == 0 {
            break;
        }
    }
    for batch in emptied.chunks(DELETION_BATCH_ROWS) {
        diesel::delete(conversations::table.filter(conversations::id.eq_any(batch)))
            .execute(conn)?;
    }
    Ok((emptied.len() as u64, deleted_events))
}
