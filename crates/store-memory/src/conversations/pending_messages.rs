//! `PendingMessageRepository`.

use std::collections::BTreeSet;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::conversation::pending::{
    EnqueueOutcome, MAX_PENDING_MESSAGES, MAX_START_TASK_NOTES, MessageTarget, NewPendingMessage,
    PendingMessage, PendingMessageRepository,
};
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::IdempotencyCheck;
use domain::error::StoreError;
use domain::id::{ConversationId, HostId, OwnerId};
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::start_task::{StartStatus, StartTask};
use uuid::Uuid;

use crate::MemoryStore;
use crate::state::{MemoryState, PendingRow};
use crate::users::purge::OwnerSet;

impl MemoryState {
    /// The target conversation, or why it cannot take pending messages.
    fn target(
        &self,
        owner: &OwnerId,
        target: MessageTarget,
    ) -> Result<ConversationId, EnqueueOutcome> {
        let theirs = self.tasks.values().map(|row| &row.task);
        let theirs = theirs.filter(|it| it.owner == *owner);
        let start: Option<&StartTask> = match target {
            MessageTarget::Task(id) => theirs.into_iter().find(|it| it.id == id),
            MessageTarget::Conversation(id) => {
                let row = self.conversations.get(&id);
                if row.is_some_and(|row| row.conversation.owner == *owner) {
                    return Ok(id);
                }
                let starts = theirs.filter(|it| it.conversation_id == id);
                starts.max_by_key(|it| (!it.status.is_terminal(), it.created_at))
            }
        };
        match start {
            None => Err(EnqueueOutcome::Unknown),
            Some(it) if it.status == StartStatus::Error => {
                Err(EnqueueOutcome::Failed(it.detail.clone()))
            }
            Some(it) => Ok(it.conversation_id),
        }
    }

    fn waiting(&self, id: ConversationId) -> impl Iterator<Item = &PendingRow> {
        let owner = self
            .conversations
            .get(&id)
            .map(|row| &row.conversation.owner);
        self.pending
            .iter()
            .filter(move |it| it.conversation_id == id && Some(&it.owner) == owner)
    }

    /// Whether the conversation's messages can be delivered to a sandbox of this host.
    fn is_ready(&self, id: ConversationId, host: &HostId) -> bool {
        let row = self.conversations.get(&id);
        let sandbox = row.and_then(|row| self.sandboxes.get(&row.conversation.sandbox_id));
        let runs = sandbox.is_some_and(|it| {
            it.host == *host
                && it.desired == DesiredState::Running
                && it.status == SandboxStatus::Running
        });
        let mut starts = self.tasks.values().map(|row| &row.task);
        runs && starts.all(|it| it.conversation_id != id || it.status.is_terminal())
    }

    /// Deletes messages whose conversation has neither a row nor a start task of the owner.
    pub(crate) fn delete_orphaned_messages(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|message| {
            let row = self.conversations.get(&message.conversation_id);
            let mut starts = self.tasks.values().map(|row| &row.task);
            row.is_some_and(|row| row.conversation.owner == message.owner)
                || starts.any(|it| {
                    it.conversation_id == message.conversation_id && it.owner == message.owner
                })
        });
        self.pending = pending;
    }

    /// Deletes at most `limit` messages of these owners; returns how many.
    pub(crate) fn purge_pending(&mut self, of: &OwnerSet, limit: usize) -> usize {
        let theirs = self.pending.iter().filter(|it| of.contains(&it.owner));
        let theirs: BTreeSet<Uuid> = theirs.map(|it| it.message.id).take(limit).collect();
        self.pending.retain(|it| !theirs.contains(&it.message.id));
        theirs.len()
    }
}

#[async_trait]
impl PendingMessageRepository for MemoryStore {
    async fn enqueue(&self, message: &NewPendingMessage) -> Result<EnqueueOutcome, StoreError> {
        let mut state = self.lock();
        if let Some(answer) = message.responses.first() {
            match state.check_idempotency(&answer.request) {
                IdempotencyCheck::New => {}
                known => return Ok(EnqueueOutcome::KeyUsed(known)),
            }
        }
        state.check_active_owner(&message.owner)?;
        let conversation = match state.target(&message.owner, message.target) {
            Ok(id) => id,
            Err(refusal) => return Ok(refusal),
        };
        let waiting = state.pending.iter();
        let waiting =
            waiting.filter(|it| it.conversation_id == conversation && it.owner == message.owner);
        let count = waiting.count();
        if count >= MAX_PENDING_MESSAGES {
            return Ok(EnqueueOutcome::Full);
        }
        state.pending.push(PendingRow {
            message: PendingMessage {
                id: message.id,
                message: message.message.clone(),
                tried_at: None,
            },
            owner: message.owner.clone(),
            conversation_id: conversation,
            created_at: message.created_at,
        });
        if let Some(answer) = message.responses.get(count) {
            state.store_response(answer);
        }
        let row = state.conversations.get(&conversation);
        if let Some(sandbox) = row.and_then(|row| state.sandboxes.get(&row.conversation.sandbox_id))
        {
            self.publish_sandbox(sandbox);
        }
        Ok(EnqueueOutcome::Queued(count + 1))
    }

    async fn list_deliverable(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let state = self.lock();
        let all: BTreeSet<ConversationId> =
            state.pending.iter().map(|it| it.conversation_id).collect();
        let ready = all.into_iter().filter(|id| state.is_ready(*id, host));
        let mut ready: Vec<_> = ready
            .filter_map(|id| {
                let first = state.waiting(id).next()?;
                Some((first.message.tried_at, first.created_at, id))
            })
            .collect();
        ready.sort();
        Ok(ready.into_iter().map(|(.., id)| id).take(limit).collect())
    }

    async fn list_waiting(&self, id: ConversationId) -> Result<Vec<PendingMessage>, StoreError> {
        let state = self.lock();
        Ok(state.waiting(id).map(|it| it.message.clone()).collect())
    }

    async fn begin_delivery(
        &self,
        id: Uuid,
        last_tried_at: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let row = state.pending.iter_mut().find(|it| it.message.id == id);
        let unchanged = row.filter(|row| row.message.tried_at == last_tried_at);
        Ok(match unchanged {
            Some(row) => {
                row.message.tried_at = Some(at);
                true
            }
            None => false,
        })
    }

    async fn complete_delivery(&self, id: Uuid) -> Result<(), StoreError> {
        self.lock().pending.retain(|it| it.message.id != id);
        Ok(())
    }

    async fn drop_with_note(&self, id: Uuid, note: &str) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(index) = state.pending.iter().position(|it| it.message.id == id) else {
            return Ok(());
        };
        let row = state.pending.remove(index);
        let mut tasks = state.tasks.values_mut().map(|row| &mut row.task);
        let task = tasks.find(|it| {
            it.conversation_id == row.conversation_id
                && it.owner == row.owner
                && it.status == StartStatus::Ready
        });
        if let Some(task) = task.filter(|task| task.notes.len() < MAX_START_TASK_NOTES) {
            task.notes.push(note.to_owned());
            task.detail = Some(task.notes.join(" "));
            self.publish(StoreChange::StartTask(task.id));
        }
        Ok(())
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old = state.pending.iter().filter(|it| it.created_at < before);
        let mut old: Vec<_> = old.map(|it| (it.created_at, it.message.id)).collect();
        old.sort_unstable();
        old.truncate(limit);
        let ids: BTreeSet<Uuid> = old.into_iter().map(|(_, id)| id).collect();
        state.pending.retain(|it| !ids.contains(&it.message.id));
        Ok(ids.len() as u64)
    }
}
