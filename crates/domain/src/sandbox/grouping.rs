//! Sandbox grouping: how the conversations of a user share sandboxes. `docs/reference/wire/settings.md` describes the
//! setting.

use super::Sandbox;
use crate::clock::Timestamp;

/// Maximum number of conversations in a sandbox that the service chooses. A start that names a sandbox may exceed it.
pub const MAX_SHARED_CONVERSATIONS: u32 = 20;

/// How to choose among the user's running sandboxes for a new conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxGrouping {
    Newest,
    LeastRecentlyUsed,
    FewestConversations,
    /// Any sandbox with room; the one created first.
    Any,
}

/// A running sandbox and its use.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxOccupancy {
    pub sandbox: Sandbox,
    /// Conversations in it, including those that are being started.
    pub conversations: u32,
    /// Time of the last change or request of its conversations; without conversations, its time of creation.
    pub used_at: Timestamp,
}

impl SandboxGrouping {
    /// The sandboxes with room for another conversation, best first. Ties are broken by creation time, then by id.
    pub fn rank(self, mut running: Vec<SandboxOccupancy>) -> Vec<Sandbox> {
        running.retain(|it| it.conversations < MAX_SHARED_CONVERSATIONS);
        running.sort_by(|a, b| {
            (a.sandbox.created_at, &a.sandbox.id).cmp(&(b.sandbox.created_at, &b.sandbox.id))
        });
        match self {
            Self::Newest => running.reverse(),
            Self::LeastRecentlyUsed => running.sort_by_key(|it| it.used_at),
            Self::FewestConversations => running.sort_by_key(|it| it.conversations),
            Self::Any => {}
        }
        running.into_iter().map(|it| it.sandbox).collect()
    }
}
