//! Filters and changes of conversations.

use crate::clock::Timestamp;
use crate::conversation::Trigger;
use crate::git::GitProvider;
use crate::id::{ConversationId, SandboxId};
use crate::patch::Patch;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Order of a list; ties are broken by id.
    #[derive(Default)]
    ConversationOrder {
        /// Oldest first.
        CreatedAt = "CREATED_AT",
        /// Newest first.
        #[default]
        CreatedAtDesc = "CREATED_AT_DESC",
        /// Longest unchanged first.
        UpdatedAt = "UPDATED_AT",
        /// Last changed first.
        UpdatedAtDesc = "UPDATED_AT_DESC",
    }
}

/// Filter of list, search and count, and the order of list and search.
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
    pub order: ConversationOrder,
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
