//! How the conversations of a user share sandboxes (contract v1, section 5.4).

use super::Sandbox;
use crate::clock::Timestamp;

/// Conversations that a shared sandbox holds at most. Whoever names a sandbox may put more into it.
pub const MAX_SHARED_CONVERSATIONS: u32 = 20;

/// Which of the user's running sandboxes a new conversation shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxGrouping {
    /// The one that was made last.
    Newest,
    /// The one that has not been used for the longest time.
    LeastRecentlyUsed,
    /// The one with the fewest conversations.
    FewestConversations,
    /// Whichever has room: the one that was made first.
    Any,
}

/// A running sandbox and how much it is used.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxOccupancy {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Conversations in it, those being started there among them.
    pub conversations: u32,
    /// When one of them last changed or was asked for; when it was made, without any.
    pub used_at: Timestamp,
}

impl SandboxGrouping {
    /// Those with room for one more, best first. Ties: the one made first, then by id.
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
