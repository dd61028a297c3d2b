//! What conversations to find, and what may be changed.

use crate::clock::Timestamp;
use crate::conversation::{GitProvider, Trigger};
use crate::id::{ConversationId, SandboxId};
use crate::patch::Patch;

/// Filter of list, search and count. Order is always newest first (`created_at`, then id).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationFilter {
    /// Case-insensitive substring of the title; `%` and `_` are themselves.
    pub title_contains: Option<String>,
    /// `created_at` at or after.
    pub created_from: Option<Timestamp>,
    /// `created_at` before.
    pub created_before: Option<Timestamp>,
    /// `updated_at` at or after.
    pub updated_from: Option<Timestamp>,
    /// `updated_at` before.
    pub updated_before: Option<Timestamp>,
    /// Only in this sandbox.
    pub sandbox_id: Option<SandboxId>,
    /// Only about this repository, as it is spelled there.
    pub selected_repository: Option<String>,
    /// Only what this started.
    pub trigger: Option<Trigger>,
    /// Only parts of this conversation.
    pub parent: Option<ConversationId>,
    /// Whether sub-conversations count, too.
    pub include_sub_conversations: bool,
}

/// A partial update by the owner. One statement, never read-change-write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationChange {
    /// Title; setting or clearing it also ends automatic titles.
    pub title: Patch<String>,
    /// Public flag.
    pub public: Patch<bool>,
    /// Repository.
    pub selected_repository: Patch<String>,
    /// Branch.
    pub selected_branch: Patch<String>,
    /// Provider.
    pub git_provider: Patch<GitProvider>,
}

impl ConversationChange {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
