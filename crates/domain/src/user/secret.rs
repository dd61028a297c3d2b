//! Users' secrets: named values for agents, each sealed by itself.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::encryption::cipher::Sealed;
use crate::error::StoreError;
use crate::id::{OwnerId, SecretId};
use crate::page::{Page, PageRequest};
use crate::secret_rule::SecretRules;

/// Maximum number of secrets of one user.
pub const MAX_SECRETS_PER_USER: usize = 1_000;

/// Begins a placeholder: `<prefix><sandbox>.<sealed name>`, of letters, digits, `_`, `-` and one point. A sandbox has it in
/// place of the value of a secret with hosts.
pub const PLACEHOLDER_PREFIX: &str = "workspace_secret_";
/// Maximum number of hosts of one secret.
pub const MAX_HOSTS_PER_SECRET: usize = 32;

/// The entity of a [`StoreError::Full`] about secrets.
pub const SECRETS_ENTITY: &str = "secrets";

/// A sealed value and the id that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretValue {
    /// Id of the value; never shown. Each new value gets a new id, so that storing it does not depend on the former
    /// one.
    pub id: SecretId,
    /// The value, sealed with context [`SecretValue::context`].
    pub sealed: Sealed,
}

impl SecretValue {
    /// Associated data of the sealed value: it opens neither in another user's row nor under another value's id. It
    /// does not contain the name, so that a secret can be renamed without its key.
    pub fn context(owner: &OwnerId, id: SecretId) -> String {
        format!("user/{owner}/secret/{id}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomSecret {
    pub owner: OwnerId,
    /// Name, unique for the owner: `[A-Za-z_][A-Za-z0-9_]*`, at most 255 characters.
    pub name: String,
    /// Its purpose; may be empty.
    pub description: String,
    /// The hosts to which the service sends the value for a sandbox, which gets a placeholder. Without any, sandboxes
    /// get the value.
    pub hosts: SecretRules,
    pub value: SecretValue,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A secret without its value, for lists, because values are large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSummary {
    pub name: String,
    /// Its purpose; may be empty.
    pub description: String,
    /// See [`CustomSecret::hosts`].
    pub hosts: SecretRules,
    /// Length of the sealed text in bytes. Sealing does not hide the length: a value as long as a sealed empty text is
    /// empty.
    pub sealed_length: usize,
}

impl From<&CustomSecret> for SecretSummary {
    fn from(secret: &CustomSecret) -> Self {
        Self {
            name: secret.name.clone(),
            description: secret.description.clone(),
            hosts: secret.hosts.clone(),
            sealed_length: secret.value.sealed.as_text().len(),
        }
    }
}

/// A change of a secret; `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretChange {
    pub name: Option<String>,
    pub description: Option<String>,
    pub hosts: Option<SecretRules>,
    pub value: Option<SecretValue>,
}

/// The store of secrets. Every call is one transaction and does not depend on an earlier read, so that concurrent
/// writers are serialised.
#[async_trait]
pub trait SecretRepository: Send + Sync + 'static {
    /// The secret of this name with its value, as a sandbox requests it.
    async fn find(&self, owner: &OwnerId, name: &str) -> Result<Option<CustomSecret>, StoreError>;
    /// A page ordered by name in ascending byte order. `name_contains` filters by substring, without regard to the case
    /// of ASCII letters; `%` and `_` have no special meaning.
    async fn search(
        &self,
        owner: &OwnerId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<SecretSummary>, StoreError>;
    /// All secrets in order of creation, ties by name; at most [`MAX_SECRETS_PER_USER`].
    async fn all(&self, owner: &OwnerId) -> Result<Vec<SecretSummary>, StoreError>;
    /// Stores a new secret. `Conflict` if its name is taken, `Full` of [`SECRETS_ENTITY`] if the owner has
    /// [`MAX_SECRETS_PER_USER`], `NotFound` if the owner was deleted
    /// ([`UserRepository::purge`](crate::user::identity::UserRepository::purge)).
    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError>;
    /// Stores a new secret as [`SecretRepository::insert`] does, or applies `change` if the name is taken. Returns
    /// whether the secret is new.
    async fn put(&self, secret: &CustomSecret, change: &SecretChange) -> Result<bool, StoreError>;
    /// Changes the secret of this name and sets its `updated_at`. `false` if there is none. `Conflict` if the new name
    /// is taken.
    async fn change(
        &self,
        owner: &OwnerId,
        name: &str,
        change: &SecretChange,
        at: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Deletes the secret of this name. `false` if there is none.
    async fn delete(&self, owner: &OwnerId, name: &str) -> Result<bool, StoreError>;
}
