//! Filters and changes of conversations.

use crate::clock::Timestamp;
use crate::conversation::Trigger;
use crate::git::GitProvider;
use crate::id::{ConversationId, SandboxId};
use crate::patch::Patch;

/// Filter of list, search and count. Order is always newest first (`created_at`, then id).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationFilter {
    /// Substring of the title, without regard to case; `%` and `_` have no special meaning.
    pub title_contains: Option<String>,
    /// `created_at` at or after.
    pub created_from: Option<Timestamp>,
    /// `created_at` before.
    pub created_before: Option<Timestamp>,
    /// `updated_at` at or after.
    pub updated_from: Option<Timestamp>,
    /// `updated_at` before.
    pub updated_before: Option<Timestamp>,
    pub sandbox_id: Option<SandboxId>,
    /// Only with this repository, compared exactly.
    pub selected_repository: Option<String>,
    pub trigger: Option<Trigger>,
    /// Only sub-conversations of this conversation.
    pub parent: Option<ConversationId>,
    pub include_sub_conversations: bool,
}

/// A partial update by the owner. Stores apply it in one statement, without reading first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationChange {
    /// Title. Setting or clearing it also disables automatic titles.
    pub title: Patch<String>,
    pub public: Patch<bool>,
    pub selected_repository: Patch<String>,
    pub selected_branch: Patch<String>,
    pub git_provider: Patch<GitProvider>,
}

impl ConversationChange {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
