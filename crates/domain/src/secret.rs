//! A user's own secrets: named values for the agent, each sealed by itself.

use async_trait::async_trait;

use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{SecretId, UserId};
use crate::page::{Page, PageRequest};

/// Secrets that one user may keep.
pub const MAX_SECRETS_PER_USER: usize = 1_000;

/// What [`StoreError::Full`] calls them.
pub const SECRETS_ENTITY: &str = "secrets";

/// A sealed value with the id that it is sealed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretValue {
    /// Ours; never shown. A new value comes with a new one, so that storing a value needs nothing of what was stored before.
    pub id: SecretId,
    /// The value, sealed with context [`SecretValue::context`].
    pub sealed: Sealed,
}

impl SecretValue {
    /// Associated data of the sealed value: no other user's row and no other value's place opens it. It does not name the
    /// secret, so that a new name needs no key.
    pub fn context(owner: &UserId, id: SecretId) -> String {
        format!("user/{owner}/secret/{id}")
    }
}

/// One secret as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomSecret {
    /// Whose.
    pub owner: UserId,
    /// Name, unique for the owner: `[A-Za-z_][A-Za-z0-9_]*`, at most 255 characters.
    pub name: String,
    /// What it is for, in the owner's words; may be empty.
    pub description: String,
    /// The value.
    pub value: SecretValue,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A secret without its value: values are large, and lists need none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSummary {
    /// Name.
    pub name: String,
    /// What it is for; may be empty.
    pub description: String,
    /// Bytes of the sealed value's text. Sealing hides what a value is, and not how long: one as long as a sealed empty text
    /// is empty.
    pub sealed_length: usize,
}

impl From<&CustomSecret> for SecretSummary {
    fn from(secret: &CustomSecret) -> Self {
        Self {
            name: secret.name.clone(),
            description: secret.description.clone(),
            sealed_length: secret.value.sealed.as_text().len(),
        }
    }
}

/// What to change of a secret; `None` keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretChange {
    /// Another name.
    pub name: Option<String>,
    /// Another description.
    pub description: Option<String>,
    /// Another value.
    pub value: Option<SecretValue>,
}

/// Where secrets are kept. Every call is one transaction, and none needs what an earlier one read: writers at the same time
/// come one after the other.
#[async_trait]
pub trait SecretRepository: Send + Sync + 'static {
    /// The secret of this name, with its value: what a sandbox asks for.
    async fn find(&self, owner: &UserId, name: &str) -> Result<Option<CustomSecret>, StoreError>;
    /// By name in ascending byte order; only names that contain `name_contains`, whatever the case of ASCII letters. `%` and
    /// `_` mean themselves.
    async fn search(
        &self,
        owner: &UserId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<SecretSummary>, StoreError>;
    /// All of them in order of creation (ties by name): at most [`MAX_SECRETS_PER_USER`].
    async fn all(&self, owner: &UserId) -> Result<Vec<SecretSummary>, StoreError>;
    /// Stores a new secret. `Conflict` if its name is taken, `Full` (of [`SECRETS_ENTITY`]) if the owner has [`MAX_SECRETS_PER_USER`],
    /// `NotFound` for a user who was deleted ([`UserRepository::purge`](crate::identity::UserRepository::purge)).
    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError>;
    /// Stores a new secret as [`SecretRepository::insert`] does, or makes `change` if its name is taken. Whether it was new.
    async fn put(&self, secret: &CustomSecret, change: &SecretChange) -> Result<bool, StoreError>;
    /// Changes the secret of this name and sets its `updated_at`; whether there was one. `Conflict` if the new name is
    /// another secret's.
    async fn change(
        &self,
        owner: &UserId,
        name: &str,
        change: &SecretChange,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Deletes the secret of this name; whether there was one.
    async fn delete(&self, owner: &UserId, name: &str) -> Result<bool, StoreError>;
}
