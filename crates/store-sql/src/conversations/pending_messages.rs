//! `PendingMessageRepository`.

use async_trait::async_trait;
use diesel::dsl::{exists, max, not, select};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::MessageInput;
use domain::conversation::pending::{
    EnqueueOutcome, MAX_PENDING_MESSAGES, MAX_START_TASK_NOTES, MessageTarget, NewPendingMessage,
    PendingMessage, PendingMessageRepository,
};
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::IdempotencyCheck;
use domain::error::{Entity, StoreError};
use domain::id::{ConversationId, HostId, SandboxId};
use domain::json::text_bytes;
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::start_task::StartStatus;
use uuid::Uuid;

use crate::conversations::deletion::DELETION_BATCH_ROWS;
use crate::database::changes::announce;
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::idempotency;
use crate::schema::codec::{replace_nul, row_limit};
use crate::schema::column_types::{JsonCol, TextCol, TimestampCol, UuidCol};
use crate::schema::{
    conversations, pending_messages, pending_messages as pending, sandboxes, start_tasks,
};
use crate::store::SqlStore;
use crate::users::activity::check_active_owner;

/// The target conversation, or why it cannot take pending messages.
fn resolve_target(
    conn: &mut AnyConnection,
    owner: &str,
    target: MessageTarget,
) -> Result<Result<ConversationId, EnqueueOutcome>, TransactionError> {
    let starts = start_tasks::table
        .into_boxed::<AnyBackend>()
        .filter(start_tasks::owner.eq(owner))
        .select((
            start_tasks::conversation_id,
            start_tasks::status,
            start_tasks::detail,
        ));
    let start = match target {
        MessageTarget::Task(id) => starts.filter(start_tasks::id.eq(UuidCol::from(id))),
        MessageTarget::Conversation(id) => {
            let conversation = conversations::table
                .filter(conversations::id.eq(UuidCol::from(id)))
                .filter(conversations::owner.eq(owner));
            if select(exists(conversation)).get_result::<bool>(conn)? {
                return Ok(Ok(id));
            }
            // Earlier failed tasks may have the same id.
            starts
                .filter(start_tasks::conversation_id.eq(UuidCol::from(id)))
                .order((start_tasks::is_open.desc(), start_tasks::created_at.desc()))
        }
    };
    let start: Option<(UuidCol, String, Option<String>)> = start.first(conn).optional()?;
    Ok(match start {
        None => Err(EnqueueOutcome::Unknown),
        Some((_, status, cause)) if status == StartStatus::Error.as_str() => {
            Err(EnqueueOutcome::Failed(cause))
        }
        Some((id, ..)) => Ok(id.into()),
    })
}

fn enqueue(
    conn: &mut AnyConnection,
    message: &NewPendingMessage,
) -> Result<EnqueueOutcome, TransactionError> {
    let owner = message.owner.as_str();
    if let Some(response) = message.responses.first() {
        let checked = idempotency::check(conn, &response.request)?;
        if checked != IdempotencyCheck::New {
            return Ok(EnqueueOutcome::KeyUsed(checked));
        }
    }
    check_active_owner(conn, &message.owner)?;
    let conversation = match resolve_target(conn, owner, message.target)? {
        Ok(id) => id,
        Err(refusal) => return Ok(refusal),
    };
    let queue = pending::table
        .filter(pending::conversation_id.eq(UuidCol::from(conversation)))
        .filter(pending::owner.eq(owner));
    let count: i64 = queue.count().get_result(conn)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count >= MAX_PENDING_MESSAGES {
        return Ok(EnqueueOutcome::Full);
    }
    let last: Option<i64> = queue.select(max(pending::place)).first(conn)?;
    diesel::insert_into(pending::table)
        .values((
            pending::id.eq(UuidCol(message.id)),
            pending::owner.eq(owner),
            pending::conversation_id.eq(UuidCol::from(conversation)),
            pending::place.eq(last.unwrap_or_default() + 1),
            pending::message.eq(JsonCol(message.message.clone())),
            pending::message_bytes.eq(row_limit(text_bytes(&message.message))),
            pending::created_at.eq(TimestampCol(message.created_at)),
        ))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::PendingMessage)))?;
    if let Some(response) = message.responses.get(count) {
        idempotency::store_response(conn, response)?;
    }
    notify_host(conn, conversation)?;
    Ok(EnqueueOutcome::Queued(count + 1))
}

/// Notifies the host of the conversation's running sandbox of the new message.
fn notify_host(
    conn: &mut AnyConnection,
    conversation: ConversationId,
) -> Result<(), TransactionError> {
    let sandbox: Option<(TextCol<SandboxId>, TextCol<HostId>)> = conversations::table
        .inner_join(sandboxes::table.on(sandboxes::id.eq(conversations::sandbox_id)))
        .filter(conversations::id.eq(UuidCol::from(conversation)))
        .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
        .select((sandboxes::id, sandboxes::host))
        .first(conn)
        .optional()
        .map_decode_error(Entity::Sandbox)?;
    if let Some((TextCol(id), TextCol(host))) = sandbox {
        let change = StoreChange::Sandbox {
            id,
            host,
            is_wanted: true,
        };
        announce(conn, &change)?;
    }
    Ok(())
}

/// Deletes messages for these conversations whose owner has neither the conversation nor a start task of it, in the caller's
/// transaction.
pub(crate) fn delete_orphans(
    conn: &mut AnyConnection,
    conversations: &[UuidCol],
) -> Result<(), TransactionError> {
    let conversation = conversations::table
        .filter(conversations::id.eq(pending::conversation_id))
        .filter(conversations::owner.eq(pending::owner));
    let start = start_tasks::table
        .filter(start_tasks::conversation_id.eq(pending::conversation_id))
        .filter(start_tasks::owner.eq(pending::owner));
    for batch in conversations.chunks(DELETION_BATCH_ROWS) {
        let orphans = pending::table
            .filter(pending::conversation_id.eq_any(batch))
            .filter(not(exists(conversation)))
            .filter(not(exists(start)));
        diesel::delete(orphans).execute(conn)?;
    }
    Ok(())
}

#[async_trait]
impl PendingMessageRepository for SqlStore {
    async fn enqueue(&self, message: &NewPendingMessage) -> Result<EnqueueOutcome, StoreError> {
        let jobs = self.db.for_owner(&message.owner);
        let message = message.clone();
        jobs.run(JobMode::Write, move |conn| enqueue(conn, &message))
            .await
    }

    async fn list_deliverable(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let (host, limit) = (host.to_string(), row_limit(limit));
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let earlier = diesel::alias!(pending_messages as earlier);
            let starting = start_tasks::table
                .filter(start_tasks::conversation_id.eq(pending::conversation_id))
                .filter(start_tasks::is_open);
            let not_first = earlier
                .filter(
                    earlier
                        .field(pending::conversation_id)
                        .eq(pending::conversation_id),
                )
                .filter(earlier.field(pending::owner).eq(pending::owner))
                .filter(earlier.field(pending::place).lt(pending::place));
            let conversation_of_message = conversations::id
                .eq(pending::conversation_id)
                .and(conversations::owner.eq(pending::owner));
            let ids: Vec<UuidCol> = pending::table
                .inner_join(conversations::table.on(conversation_of_message))
                .inner_join(sandboxes::table.on(sandboxes::id.eq(conversations::sandbox_id)))
                .filter(sandboxes::host.eq(&host))
                .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
                .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()))
                .filter(not(exists(starting)))
                .filter(not(exists(not_first)))
                .order((
                    pending::tried_at.is_not_null().asc(),
                    pending::tried_at.asc(),
                    pending::created_at.asc(),
                    pending::id.asc(),
                ))
                .limit(limit)
                .select(pending::conversation_id)
                .load(conn)?;
            Ok(ids.into_iter().map(ConversationId::from).collect())
        })
        .await
    }

    async fn list_waiting(&self, id: ConversationId) -> Result<Vec<PendingMessage>, StoreError> {
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let conversation_of_message = conversations::id
                .eq(pending::conversation_id)
                .and(conversations::owner.eq(pending::owner));
            let rows: Vec<(UuidCol, JsonCol<MessageInput>, Option<TimestampCol>)> = pending::table
                .inner_join(conversations::table.on(conversation_of_message))
                .filter(pending::conversation_id.eq(UuidCol::from(id)))
                .order(pending::place.asc())
                .select((pending::id, pending::message, pending::tried_at))
                .load(conn)
                .map_decode_error(Entity::PendingMessage)?;
            let waiting = rows
                .into_iter()
                .map(|(id, message, tried_at)| PendingMessage {
                    id: id.0,
                    message: message.0,
                    tried_at: tried_at.map(|at| at.0),
                });
            Ok(waiting.collect())
        })
        .await
    }

    async fn begin_delivery(
        &self,
        id: Uuid,
        last_tried_at: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let row = pending::table
                .into_boxed::<AnyBackend>()
                .filter(pending::id.eq(UuidCol(id)));
            let row = match last_tried_at {
                Some(tried_at) => row.filter(pending::tried_at.eq(TimestampCol(tried_at))),
                None => row.filter(pending::tried_at.is_null()),
            };
            let unchanged: Option<UuidCol> = row.select(pending::id).first(conn).optional()?;
            let Some(id) = unchanged else {
                return Ok(false);
            };
            diesel::update(pending::table.find(id))
                .set(pending::tried_at.eq(TimestampCol(at)))
                .execute(conn)?;
            Ok(true)
        })
        .await
    }

    async fn complete_delivery(&self, id: Uuid) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            diesel::delete(pending::table.find(UuidCol(id))).execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn drop_with_note(&self, id: Uuid, note: &str) -> Result<(), StoreError> {
        let note = note.to_owned();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let row: Option<(UuidCol, String)> = pending::table
                .find(UuidCol(id))
                .select((pending::conversation_id, pending::owner))
                .first(conn)
                .optional()?;
            let Some((conversation, owner)) = row else {
                return Ok(());
            };
            diesel::delete(pending::table.find(UuidCol(id))).execute(conn)?;
            let task: Option<(UuidCol, JsonCol<Vec<String>>)> = start_tasks::table
                .filter(start_tasks::conversation_id.eq(conversation))
                .filter(start_tasks::owner.eq(owner))
                .filter(start_tasks::status.eq(StartStatus::Ready.as_str()))
                .select((start_tasks::id, start_tasks::notes))
                .first(conn)
                .optional()
                .map_decode_error(Entity::StartTask)?;
            let Some((task, JsonCol(mut notes))) = task else {
                return Ok(());
            };
            if notes.len() >= MAX_START_TASK_NOTES {
                return Ok(());
            }
            notes.push(replace_nul(note.as_str()));
            diesel::update(start_tasks::table.find(task))
                .set((
                    start_tasks::detail.eq(notes.join(" ")),
                    start_tasks::notes.eq(JsonCol(notes)),
                ))
                .execute(conn)?;
            announce(conn, &StoreChange::StartTask(task.into()))
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("pending_messages", "id", "created_at");
        self.prune_rows(rows, before, limit).await
    }
}
