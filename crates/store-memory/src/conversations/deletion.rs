//! The deletion of conversations.

use std::collections::BTreeSet;

use domain::clock::Timestamp;
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::start_task::{StartStatus, StartTask};

use crate::state::{DeletedConversation, MemoryState};

impl MemoryState {
    /// See `ConversationRepository::delete`. The conversation must exist.
    pub(crate) fn delete_tree(&mut self, root: ConversationId, at: Timestamp) {
        let tree = self.tree(root);
        if let Some(row) = self.conversations.get(&root) {
            let owner = row.conversation.owner.clone();
            self.end_starts(&owner, &tree, at);
            self.pending
                .retain(|it| it.owner != owner || !tree.contains(&it.conversation_id));
        }
        let mut sandboxes: BTreeSet<SandboxId> = BTreeSet::new();
        let mut deletions = Vec::new();
        for id in tree {
            self.events.remove(&id);
            if let Some(row) = self.conversations.remove(&id) {
                sandboxes.insert(row.conversation.sandbox_id.clone());
                deletions.push((id, row.conversation.sandbox_id));
            }
        }
        sandboxes.retain(|sandbox| self.delete_unless_needed(sandbox, at));
        for (id, sandbox) in deletions {
            let deletion = DeletedConversation {
                // The deletion of a sandbox also deletes its agent server's conversations.
                pending: !sandboxes.contains(&sandbox),
                sandbox,
                at,
            };
            self.deleted.insert(id, deletion);
        }
    }

    /// The conversation and all its descendants of the same owner.
    fn tree(&self, root: ConversationId) -> BTreeSet<ConversationId> {
        let owner = self
            .conversations
            .get(&root)
            .map(|row| &row.conversation.owner);
        let mut tree = BTreeSet::from([root]);
        loop {
            let children: Vec<_> = self
                .conversations
                .values()
                .filter(|row| {
                    row.conversation
                        .parent
                        .is_some_and(|parent| tree.contains(&parent))
                })
                .filter(|row| {
                    Some(&row.conversation.owner) == owner && !tree.contains(&row.conversation.id)
                })
                .map(|row| row.conversation.id)
                .collect();
            if children.is_empty() {
                return tree;
            }
            tree.extend(children);
        }
    }

    /// Deletes ended tasks and ends unfinished ones in ERROR, only those of the owner: another user's start with the
    /// same id may have failed.
    fn end_starts(
        &mut self,
        owner: &OwnerId,
        conversations: &BTreeSet<ConversationId>,
        at: Timestamp,
    ) {
        let of_conversations =
            |it: &StartTask| it.owner == *owner && conversations.contains(&it.conversation_id);
        self.tasks
            .retain(|_, row| !(of_conversations(&row.task) && row.task.status.is_terminal()));
        for row in self.tasks.values_mut() {
            if of_conversations(&row.task) {
                row.task.status = StartStatus::Error;
                row.task.detail =
                    Some("The conversation was deleted before its start had ended.".to_owned());
                row.task.sealed_secrets = None;
                row.task.updated_at = at;
                row.lease_until = None;
                row.fence += 1;
            }
        }
    }
}
