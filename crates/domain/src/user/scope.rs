//! The scope of a request.

use crate::id::OwnerId;

/// The caller of a read or write of a user's objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One user in one organization: sees and changes only their own objects there.
    Owner(OwnerId),
    /// The service (start worker, reconciler): sees everything.
    System,
}

impl Scope {
    /// Whether the scope sees objects of `owner`.
    pub fn sees(&self, owner: &OwnerId) -> bool {
        match self {
            Self::Owner(own) => own == owner,
            Self::System => true,
        }
    }

    /// The owner to filter by; `None` for the service.
    pub fn owner(&self) -> Option<&OwnerId> {
        match self {
            Self::Owner(owner) => Some(owner),
            Self::System => None,
        }
    }
}
