//! Settings: one sealed document with a revision for each user in an organization, and one for each shared organization.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{InvalidId, OrganizationId, OwnerId, UserId};

/// Number of saves of a record. It detects lost updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub i64);

/// Whose settings a document holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingsOwner {
    /// Those of a user in an organization.
    Member(OwnerId),
    /// Those that all members of a shared organization use.
    Organization(OrganizationId),
}

impl fmt::Display for SettingsOwner {
    /// The key of the stored document: the text of the owner, or a space and the 32 hex digits of the organization. No text
    /// of an owner begins with a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(owner) => write!(f, "{owner}"),
            Self::Organization(id) => write!(f, " {id}"),
        }
    }
}

impl FromStr for SettingsOwner {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.strip_prefix(' ') {
            Some(id) => id.parse().map(Self::Organization),
            None => text.parse().map(Self::Member),
        }
    }
}

impl From<OwnerId> for SettingsOwner {
    fn from(owner: OwnerId) -> Self {
        Self::Member(owner)
    }
}

impl From<&OwnerId> for SettingsOwner {
    fn from(owner: &OwnerId) -> Self {
        Self::Member(owner.clone())
    }
}

impl From<&UserId> for SettingsOwner {
    /// Those of a user in their personal organization.
    fn from(user: &UserId) -> Self {
        Self::Member(user.into())
    }
}

impl From<UserId> for SettingsOwner {
    fn from(user: UserId) -> Self {
        Self::from(&user)
    }
}

impl From<OrganizationId> for SettingsOwner {
    fn from(id: OrganizationId) -> Self {
        Self::Organization(id)
    }
}

/// Stored settings. The whole document is sealed, because much of it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSettings {
    /// JSON document, sealed with context [`StoredSettings::context`].
    pub document: Sealed,
    pub revision: Revision,
    pub updated_at: Timestamp,
}

impl StoredSettings {
    /// Associated data of the sealed document.
    pub fn context(owner: &SettingsOwner) -> String {
        match owner {
            SettingsOwner::Member(owner) => format!("user/{owner}/settings"),
            SettingsOwner::Organization(id) => format!("organization/{id}/settings"),
        }
    }
}

#[async_trait]
pub trait SettingsRepository: Send + Sync + 'static {
    /// The settings of this owner; `None` before the first save.
    async fn load(&self, owner: &SettingsOwner) -> Result<Option<StoredSettings>, StoreError>;
    /// Saves if the stored revision is `expected` (`None`: nothing is stored), else returns `Stale`. Returns the new
    /// revision. `NotFound` if the user was deleted
    /// ([`UserRepository::purge`](crate::user::identity::UserRepository::purge)) or is no member of the organization, or if
    /// the organization does not exist any more.
    async fn save(
        &self,
        owner: &SettingsOwner,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError>;
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn keys_and_contexts_of_users_and_organizations_differ() {
        let id = OrganizationId::new(Uuid::from_u128(7));
        let user = UserId::parse("organization").unwrap();
        let owners: [SettingsOwner; 3] = [
            id.into(),
            OwnerId::from(&user).into(),
            OwnerId::new(&user, id).into(),
        ];
        for (n, owner) in owners.iter().enumerate() {
            assert_eq!(
                owner.to_string().parse::<SettingsOwner>().as_ref(),
                Ok(owner)
            );
            for other in &owners[n + 1..] {
                assert_ne!(owner.to_string(), other.to_string());
                assert_ne!(
                    StoredSettings::context(owner),
                    StoredSettings::context(other)
                );
            }
        }
        for bad in ["", " ", " x", "  00000000000000000000000000000007", "ada "] {
            assert!(bad.parse::<SettingsOwner>().is_err(), "{bad:?}");
        }
    }
}
