//! `ConversationRepository`.

use async_trait::async_trait;
use domain::change::StoreChange;
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationReport,
    ConversationRepository, ConversationView, ExecutionStatus, MAX_CONVERSATIONS_FOR_ADOPTION,
    PendingAgentDeletion, UnsettledConversation, add_pull_request_number, fold_title,
};
use domain::error::StoreError;
use domain::event::AppendOutcome;
use domain::id::{ConversationId, HostId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, SandboxStatus};
use domain::scope::Scope;

use crate::state::{ConversationRow, MemoryState};
use crate::{MemoryStore, page};

fn matches(it: &Conversation, filter: &ConversationFilter) -> bool {
    let title = || it.title.as_deref().map(fold_title);
    (match filter.parent {
        // A filter by parent includes sub-conversations.
        Some(parent) => it.parent == Some(parent),
        None => filter.include_sub_conversations || it.parent.is_none(),
    }) && filter.title_contains.as_deref().is_none_or(|search_term| {
        title().is_some_and(|title| title.contains(&fold_title(search_term)))
    }) && filter.created_from.is_none_or(|from| it.created_at >= from)
        && filter.created_before.is_none_or(|end| it.created_at < end)
        && filter.updated_from.is_none_or(|from| it.updated_at >= from)
        && filter.updated_before.is_none_or(|end| it.updated_at < end)
        && filter
            .sandbox_id
            .as_ref()
            .is_none_or(|sandbox| it.sandbox_id == *sandbox)
        && (filter.selected_repository.is_none()
            || it.selected_repository == filter.selected_repository)
        && (filter.trigger.is_none() || it.trigger == filter.trigger)
}

impl MemoryState {
    fn found<'a>(
        &'a self,
        scope: &'a Scope,
        filter: &'a ConversationFilter,
    ) -> impl Iterator<Item = &'a Conversation> {
        self.conversations
            .values()
            .map(|row| &row.it)
            .filter(move |it| scope.sees(&it.owner) && matches(it, filter))
    }

    /// The row that `origin` reports about, or why it has none.
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
        if row.it.sandbox_id == *origin {
            Ok(row)
        } else {
            Err(AppendOutcome::Foreign)
        }
    }

    pub(crate) fn insert_conversation(&mut self, it: &Conversation) {
        let row = ConversationRow {
            it: it.clone(),
            status_at: None,
            shortened_events: 0,
        };
        self.conversations.insert(it.id, row);
    }
}

impl ConversationRow {
    pub(crate) fn apply_report(&mut self, report: &ConversationReport, at: Timestamp) {
        if self.it.apply_report(report, &mut self.status_at) {
            self.it.updated_at = at;
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
        let state = self.lock();
        let rows = state
            .found(scope, filter)
            .map(|it| ((it.created_at.micros(), it.id.to_string()), it));
        let bytes = |it: &&Conversation| {
            let tags = it.tags.iter();
            let tags = tags.map(|(name, value)| name.len() + value.len());
            it.title.as_ref().map_or(0, String::len) + tags.sum::<usize>()
        };
        let page = page::page_by_bytes("conversations", page, true, rows, bytes)?;
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
        let count = self.lock().found(scope, filter).count();
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
            .filter(|row| scope.sees(&row.it.owner) && !change.is_empty())
        {
            let (it, change) = (&mut row.it, change.clone());
            it.auto_title &= change.title.is_keep();
            change.title.apply(&mut it.title);
            change.public.apply(&mut it.public);
            change
                .selected_repository
                .apply(&mut it.selected_repository);
            change.selected_branch.apply(&mut it.selected_branch);
            change.git_provider.apply(&mut it.git_provider);
            it.updated_at = at;
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
        let Some(row) = row.filter(|row| scope.sees(&row.it.owner)) else {
            return Ok(false);
        };
        if add_pull_request_number(&mut row.it.pr_numbers, number) {
            row.it.updated_at = at;
        }
        Ok(true)
    }

    async fn adopt(&self, conversation: &Conversation) -> Result<AppendOutcome, StoreError> {
        let mut state = self.lock();
        match state.reported_by(&conversation.sandbox_id, conversation.id) {
            Ok(_) => return Ok(AppendOutcome::Stored { new: 0 }),
            Err(AppendOutcome::Unknown) => {}
            Err(answer) => return Ok(answer),
        }
        // An id that an unfinished start has reserved cannot be adopted: the task stores the row itself.
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
        // The start failed while its agent server was creating the conversation, which is not wanted any more.
        let failed = state.tasks.values().any(|row| {
            row.task.conversation_id == conversation.id
                && row.task.sandbox_id == conversation.sandbox_id
        });
        if failed {
            return Ok(AppendOutcome::Deleted);
        }
        let inside = state.conversations.values();
        let inside = inside.filter(|row| row.it.sandbox_id == conversation.sandbox_id);
        if inside.count() >= MAX_CONVERSATIONS_FOR_ADOPTION as usize {
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
        observation: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let mut state = self.lock();
        Ok(match state.reported_by(origin, id) {
            Ok(row) => {
                row.apply_report(observation, at);
                AppendOutcome::Stored { new: 0 }
            }
            Err(answer) => answer,
        })
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
            .is_some_and(|row| scope.sees(&row.it.owner));
        if visible {
            let sandbox = state.view(&Scope::System, id).and_then(|view| view.sandbox);
            state.delete_tree(id, at);
            if let Some(sandbox) = sandbox {
                self.publish(StoreChange::Sandbox {
                    id: sandbox.id,
                    host: sandbox.host,
                });
            }
        }
        Ok(visible)
    }

    async fn list_pending_agent_deletions(
        &self,
        limit: usize,
    ) -> Result<Vec<PendingAgentDeletion>, StoreError> {
        let state = self.lock();
        let mut found: Vec<_> = state
            .deleted
            .iter()
            .filter(|(_, deletion)| deletion.pending)
            .filter(|(_, deletion)| {
                state.sandboxes.get(&deletion.sandbox).is_some_and(|it| {
                    it.desired == DesiredState::Running && it.status == SandboxStatus::Running
                })
            })
            .collect();
        found.sort_by_key(|(id, deletion)| (deletion.at, **id));
        Ok(found
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

    async fn list_in_sandbox(
        &self,
        sandbox: &SandboxId,
        limit: usize,
    ) -> Result<Vec<Conversation>, StoreError> {
        let state = self.lock();
        let mut found: Vec<Conversation> = state
            .conversations
            .values()
            .filter(|row| row.it.sandbox_id == *sandbox)
            .map(|row| row.it.clone())
            .collect();
        found.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id)));
        found.truncate(limit);
        Ok(found)
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
        let rows = state.conversations.values().map(|row| &row.it);
        let mut found: Vec<UnsettledConversation> = rows
            .filter(|it| may_change(it) && runs(it))
            .map(|it| UnsettledConversation {
                id: it.id,
                sandbox_id: it.sandbox_id.clone(),
                title: it.title.clone(),
                execution_status: it.execution_status,
            })
            .collect();
        found.sort_by(|a, b| (&a.sandbox_id, a.id).cmp(&(&b.sandbox_id, b.id)));
        found.truncate(limit);
        Ok(found)
    }

    async fn settle_running(
        &self,
        sandbox: &SandboxId,
        to: ExecutionStatus,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut settled = 0;
        for row in self.lock().conversations.values_mut().filter(|row| {
            row.it.sandbox_id == *sandbox
                && row.it.execution_status == Some(ExecutionStatus::Running)
        }) {
            row.it.execution_status = Some(to);
            row.status_at = Some(at);
            row.it.updated_at = at;
            settled += 1;
        }
        Ok(settled)
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
