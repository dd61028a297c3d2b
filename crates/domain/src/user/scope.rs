//! The scope of a request.

use crate::id::UserId;

/// The caller of a read or write of a user's objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One user: sees and changes only their own objects.
    User(UserId),
    /// The service (start worker, reconciler): sees everything.
    System,
}

impl Scope {
    /// Whether the scope sees objects of `owner`.
    pub fn sees(&self, owner: &UserId) -> bool {
        match self {
            Self::User(user) => user == owner,
            Self::System => true,
        }
    }

    /// The user to filter by; `None` for the service.
    pub fn user(&self) -> Option<&UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::System => None,
        }
    }
}
