//! User settings: one sealed document with a revision.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::UserId;

/// Number of saves of a record. It detects lost updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub i64);

/// A user's stored settings. The whole document is sealed, because much of it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSettings {
    /// JSON document, sealed with context [`StoredSettings::context`].
    pub document: Sealed,
    pub revision: Revision,
    pub updated_at: Timestamp,
}

impl StoredSettings {
    /// Associated data of the sealed document.
    pub fn context(owner: &UserId) -> String {
        format!("user/{owner}/settings")
    }
}

#[async_trait]
pub trait SettingsRepository: Send + Sync + 'static {
    /// The settings of this user; `None` before the first save.
    async fn load(&self, owner: &UserId) -> Result<Option<StoredSettings>, StoreError>;
    /// Saves if the stored revision is `expected` (`None`: nothing is stored), else returns `Stale`. Returns the new
    /// revision. `NotFound` if the user was deleted
    /// ([`UserRepository::purge`](crate::user::identity::UserRepository::purge)).
    async fn save(
        &self,
        owner: &UserId,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError>;
}
