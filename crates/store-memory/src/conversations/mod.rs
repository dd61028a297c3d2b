//! The ports of conversations.

mod deletion;
mod events;
mod pending_messages;

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationDeletionRepository, ConversationFilter,
    ConversationOrder, ConversationReport, ConversationReportRepository, ConversationRepository,
    ConversationView, ExecutionStatus, MAX_CONVERSATIONS_FOR_ADOPTION, PendingAgentDeletion,
    UnsettledConversation, add_pull_request_number, fold_title,
};
use domain::error::StoreError;
use domain::event::AppendOutcome;
use domain::id::{ConversationId, HostId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::user::scope::Scope;

use crate::state::{ConversationRow, MemoryState};
use crate::{MemoryStore, page};

fn matches(conversation: &Conversation, filter: &ConversationFilter) -> bool {
    let title = || conversation.title.as_deref().map(fold_title);
    (match filter.parent {
        // A filter by parent selects sub-conversations.
        Some(parent) => conversation.parent == Some(parent),
        None => filter.include_sub_conversations || conversation.parent.is_none(),
    }) && filter.title_contains.as_deref().is_none_or(|search_term| {
        title().is_some_and(|title| title.contains(&fold_title(search_term)))
    }) && filter
        .created_from
        .is_none_or(|from| conversation.created_at >= from)
        && filter
            .created_before
            .is_none_or(|end| conversation.created_at < end)
        && filter
            .updated_from
            .is_none_or(|from| conversation.updated_at >= from)
        && filter
            .updated_before
            .is_none_or(|end| conversation.updated_at < end)
        && filter
            .sandbox_id
            .as_ref()
            .is_none_or(|sandbox| conversation.sandbox_id == *sandbox)
        && (filter.selected_repository.is_none()
            || conversation.selected_repository == filter.selected_repository)
        && (filter.trigger.is_none() || conversation.trigger == filter.trigger)
}

impl MemoryState {
    fn matching_conversations<'a>(
        &'a self,
        scope: &'a Scope,
        filter: &'a ConversationFilter,
    ) -> impl Iterator<Item = &'a Conversation> {
        self.conversations
            .values()
            .map(|row| &row.conversation)
            .filter(move |it| scope.sees(&it.owner) && matches(it, filter))
    }

    /// The row that `origin` reports about, or why the report is refused.
    pub(crate) fn reported_by(
        &mut self,
        origin: &SandboxId,
        id: ConversationId,
    ) -> Result<&mut ConversationRow, AppendOutcome> {
        if self.deleted.contains_key(&id) {
            return Err(AppendOutcome::Deleted);
        }
        let row = self
            .conversations
            .get_mut(&id)
            .ok_or(AppendOutcome::Unknown)?;
        if row.conversation.sandbox_id == *origin {
            Ok(row)
        } else {
            Err(AppendOutcome::Foreign)
        }
    }

    pub(crate) fn insert_conversation(&mut self, conversation: &Conversation) {
        let row = ConversationRow {
            conversation: conversation.clone(),
            status_at: None,
            shortened_events: 0,
        };
        self.conversations.insert(conversation.id, row);
    }
}

impl ConversationRow {
    pub(crate) fn apply_report(&mut self, report: &ConversationReport, at: Timestamp) {
        if self.conversation.apply_report(report, &mut self.status_at) {
            self.conversation.updated_at = at;
        }
    }
}

#[async_trait]
impl ConversationRepository for MemoryStore {
    async fn find(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Option<ConversationView>, StoreError> {
        Ok(self.lock().view(scope, id))
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<ConversationView>>, StoreError> {
        let state = self.lock();
        Ok(ids.iter().map(|id| state.view(scope, *id)).collect())
    }

    async fn search(
        &self,
        scope: &Scope,
        filter: &ConversationFilter,
        page: &PageRequest,
    ) -> Result<Page<ConversationView>, StoreError> {
        use ConversationOrder::{CreatedAt, CreatedAtDesc, UpdatedAt, UpdatedAtDesc};
        let state = self.lock();
        let order = filter.order;
        let rows = state.matching_conversations(scope, filter).map(|it| {
            let time = match order {
                CreatedAt | CreatedAtDesc => it.created_at,
                UpdatedAt | UpdatedAtDesc => it.updated_at,
            };
            ((time.micros(), it.id.to_string()), it)
        });
        let bytes = |it: &&Conversation| {
            let tags = it.tags.iter();
            let tags = tags.map(|(name, value)| name.len() + value.len());
            it.title.as_ref().map_or(0, String::len) + tags.sum::<usize>()
        };
        let listing = format!("conversations-{order:?}");
        let descending = matches!(order, CreatedAtDesc | UpdatedAtDesc);
        let page = page::page_by_bytes(&listing, page, descending, rows, bytes)?;
        Ok(Page {
            items: page
                .items
                .into_iter()
                .filter_map(|it| state.view(scope, it.id))
                .collect(),
            next: page.next,
        })
    }

    async fn count(&self, scope: &Scope, filter: &ConversationFilter) -> Result<u64, StoreError> {
        let count = self.lock().matching_conversations(scope, filter).count();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn update(
        &self,
        scope: &Scope,
        id: ConversationId,
        change: &ConversationChange,
        at: Timestamp,
    ) -> Result<Option<ConversationView>, StoreError> {
        let mut state = self.lock();
        if let Some(row) = state
            .conversations
            .get_mut(&id)
            .filter(|row| scope.sees(&row.conversation.owner) && !change.is_empty())
        {
            let (conversation, change) = (&mut row.conversation, change.clone());
            conversation.auto_title &= change.title.is_keep();
            change.title.apply(&mut conversation.title);
            change.public.apply(&mut conversation.public);
            change
                .selected_repository
                .apply(&mut conversation.selected_repository);
            change
                .selected_branch
                .apply(&mut conversation.selected_branch);
            change.git_provider.apply(&mut conversation.git_provider);
            conversation.updated_at = at;
        }
        Ok(state.view(scope, id))
    }

    async fn add_pull_request(
        &self,
        scope: &Scope,
        id: ConversationId,
        number: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let row = state.conversations.get_mut(&id);
        let Some(row) = row.filter(|row| scope.sees(&row.conversation.owner)) else {
            return Ok(false);
        };
        if add_pull_request_number(&mut row.conversation.pr_numbers, number) {
            row.conversation.updated_at = at;
        }
        Ok(true)
    }

    async fn delete(
        &self,
        scope: &Scope,
        id: ConversationId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let visible = state
            .conversations
            .get(&id)
            .is_some_and(|row| scope.sees(&row.conversation.owner));
        if visible {
            let sandbox = state.view(&Scope::System, id).and_then(|view| view.sandbox);
            state.delete_tree(id, at);
            if let Some(sandbox) = sandbox {
                self.publish_sandbox(&sandbox);
            }
        }
        Ok(visible)
    }
}

#[async_trait]
impl ConversationReportRepository for MemoryStore {
    async fn adopt(&self, conversation: &Conversation) -> Result<AppendOutcome, StoreError> {
        let mut state = self.lock();
        match state.reported_by(&conversation.sandbox_id, conversation.id) {
            Ok(_) => return Ok(AppendOutcome::Stored { new: 0 }),
            Err(AppendOutcome::Unknown) => {}
            Err(outcome) => return Ok(outcome),
        }
        // An unfinished start task has reserved the id and stores the row itself.
        let reserved = state.tasks.values().find(|row| {
            row.task.conversation_id == conversation.id && !row.task.status.is_terminal()
        });
        if let Some(row) = reserved {
            return Ok(if row.task.sandbox_id == conversation.sandbox_id {
                AppendOutcome::Stored { new: 0 }
            } else {
                AppendOutcome::Foreign
            });
        }
        // The start failed while the agent server created the conversation, so the conversation is not adopted.
        let failed = state.tasks.values().any(|row| {
            row.task.conversation_id == conversation.id
                && row.task.sandbox_id == conversation.sandbox_id
        });
        if failed {
            return Ok(AppendOutcome::Deleted);
        }
        let in_sandbox = state.conversations.values();
        let in_sandbox =
            in_sandbox.filter(|row| row.conversation.sandbox_id == conversation.sandbox_id);
        if in_sandbox.count() >= MAX_CONVERSATIONS_FOR_ADOPTION as usize {
            return Ok(AppendOutcome::Unknown);
        }
        match state.undeleted_sandbox(&conversation.sandbox_id) {
            Some(sandbox) if sandbox.owner == conversation.owner => {
                state.insert_conversation(conversation);
                Ok(AppendOutcome::Stored { new: 1 })
            }
            _ => Ok(AppendOutcome::Unknown),
        }
    }

    async fn apply_report(
        &self,
        origin: &SandboxId,
        id: ConversationId,
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let mut state = self.lock();
        Ok(match state.reported_by(origin, id) {
            Ok(row) => {
                row.apply_report(report, at);
                AppendOutcome::Stored { new: 0 }
            }
            Err(outcome) => outcome,
        })
    }

    async fn list_in_sandbox(
        &self,
        sandbox: &SandboxId,
        limit: usize,
    ) -> Result<Vec<Conversation>, StoreError> {
        let state = self.lock();
        let mut conversations: Vec<Conversation> = state
            .conversations
            .values()
            .filter(|row| row.conversation.sandbox_id == *sandbox)
            .map(|row| row.conversation.clone())
            .collect();
        conversations.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id)));
        conversations.truncate(limit);
        Ok(conversations)
    }

    async fn list_unsettled(
        &self,
        host: &HostId,
        untitled_since: Timestamp,
        limit: usize,
    ) -> Result<Vec<UnsettledConversation>, StoreError> {
        let state = self.lock();
        let runs = |it: &Conversation| {
            state.sandboxes.get(&it.sandbox_id).is_some_and(|sandbox| {
                sandbox.host == *host
                    && sandbox.desired == DesiredState::Running
                    && sandbox.status == SandboxStatus::Running
            })
        };
        let may_change = |it: &Conversation| {
            it.execution_status
                .is_none_or(|status| status == ExecutionStatus::Running)
                || it.auto_title && it.created_at > untitled_since
        };
        let rows = state.conversations.values().map(|row| &row.conversation);
        let mut unsettled: Vec<UnsettledConversation> = rows
            .filter(|it| may_change(it) && runs(it))
            .map(|it| UnsettledConversation {
                id: it.id,
                sandbox_id: it.sandbox_id.clone(),
                title: it.title.clone(),
                execution_status: it.execution_status,
            })
            .collect();
        unsettled.sort_by(|a, b| (&a.sandbox_id, a.id).cmp(&(&b.sandbox_id, b.id)));
        unsettled.truncate(limit);
        Ok(unsettled)
    }

    async fn settle_running(
        &self,
        sandbox: &SandboxId,
        to: ExecutionStatus,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut settled = 0;
        for row in self.lock().conversations.values_mut().filter(|row| {
            row.conversation.sandbox_id == *sandbox
                && row.conversation.execution_status == Some(ExecutionStatus::Running)
        }) {
            row.conversation.execution_status = Some(to);
            row.status_at = Some(at);
            row.conversation.updated_at = at;
            settled += 1;
        }
        Ok(settled)
    }
}

#[async_trait]
impl ConversationDeletionRepository for MemoryStore {
    async fn list_pending_agent_deletions(
        &self,
        limit: usize,
    ) -> Result<Vec<PendingAgentDeletion>, StoreError> {
        let state = self.lock();
        let mut pending: Vec<_> = state
            .deleted
            .iter()
            .filter(|(_, deletion)| deletion.pending)
            .filter(|(_, deletion)| {
                state.sandboxes.get(&deletion.sandbox).is_some_and(|it| {
                    it.desired == DesiredState::Running && it.status == SandboxStatus::Running
                })
            })
            .collect();
        pending.sort_by_key(|(id, deletion)| (deletion.at, **id));
        Ok(pending
            .into_iter()
            .take(limit)
            .map(|(id, deletion)| PendingAgentDeletion {
                id: *id,
                sandbox_id: deletion.sandbox.clone(),
            })
            .collect())
    }

    async fn complete_agent_deletion(&self, id: ConversationId) -> Result<(), StoreError> {
        if let Some(deletion) = self.lock().deleted.get_mut(&id) {
            deletion.pending = false;
        }
        Ok(())
    }

    async fn prune_deleted(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let mut old: Vec<_> = state
            .deleted
            .iter()
            .filter(|(_, it)| it.at < before && !state.sandboxes.contains_key(&it.sandbox))
            .map(|(id, it)| (it.at, *id))
            .collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, id) in &old {
            state.deleted.remove(id);
        }
        Ok(old.len() as u64)
    }
}
