//! A user's own secrets: named values for the agent, each sealed by itself.

use async_trait::async_trait;

use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{SecretId, UserId};
use crate::page::{Page, PageRequest};

/// Secrets that one user may keep.
pub const MOST_SECRETS: usize = 1_000;

/// One secret as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomSecret {
    /// Ours; never shown. Names change, this does not.
    pub id: SecretId,
    /// Whose.
    pub owner: UserId,
    /// Name, unique for the owner: `[A-Za-z_][A-Za-z0-9_]*`, at most 255 characters.
    pub name: String,
    /// What it is for, in the owner's words; may be empty.
    pub description: String,
    /// The value, sealed with context [`CustomSecret::context`].
    pub value: Sealed,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl CustomSecret {
    /// Associated data of the sealed value. It names the row and not the secret's name, so that a new name needs no key.
    pub fn context(owner: &UserId, id: SecretId) -> String {
        format!("user/{owner}/secret/{id}")
    }
}

/// Where secrets are kept.
#[async_trait]
pub trait SecretRepository: Send + Sync + 'static {
    /// The secret of this name.
    async fn find(&self, owner: &UserId, name: &str) -> Result<Option<CustomSecret>, StoreError>;
    /// By name in ascending byte order; only names that contain `name_contains`, whatever the case of ASCII letters. `%` and
    /// `_` mean themselves.
    async fn search(
        &self,
        owner: &UserId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<CustomSecret>, StoreError>;
    /// All of them in order of creation (ties by id): at most [`MOST_SECRETS`].
    async fn all(&self, owner: &UserId) -> Result<Vec<CustomSecret>, StoreError>;
    /// Stores a new secret. `Conflict` if its name is taken, `Full` if the owner has [`MOST_SECRETS`], `NotFound` for a user
    /// who was deleted.
    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError>;
    /// Gives the secret `id` another name, description and value, if it still has the state of `before` (its `updated_at` and
    /// name), else `Stale`; `Conflict` if the new name is another secret's. `NotFound` if there is none.
    async fn update(&self, before: &CustomSecret, after: &CustomSecret) -> Result<(), StoreError>;
    /// Deletes the secret of this name; whether there was one.
    async fn delete(&self, owner: &UserId, name: &str) -> Result<bool, StoreError>;
}
