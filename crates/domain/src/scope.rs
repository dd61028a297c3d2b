//! Who is asking.

use crate::id::UserId;

/// The first argument of every read and write of a user's objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One user: sees and changes only what is theirs.
    User(UserId),
    /// The service itself (start worker, reconciler): sees everything.
    System,
}

impl Scope {
    /// Whether an object of `owner` is visible in this scope.
    pub fn sees(&self, owner: &UserId) -> bool {
        match self {
            Self::User(user) => user == owner,
            Self::System => true,
        }
    }

    /// The user to filter by; `None` for the service itself.
    pub fn user(&self) -> Option<&UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::System => None,
        }
    }
}
