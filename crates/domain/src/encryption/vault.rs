//! The installation secret, the master key in use, and the master keys of each process.
//!
//! ```text
//!   master key ──seals──► installation secret (one record in the store) ──keys──► fingerprints
//!        ▲                        │
//!        └── the key id in it: what every process that shares the store seals with
//! ```

use async_trait::async_trait;
use secrecy::SecretString;

use crate::clock::Timestamp;
use crate::encryption::cipher::{CipherError, Sealed};
use crate::error::StoreError;

/// Associated data of the installation secret.
pub const INSTALLATION_SECRET_CONTEXT: &str = "installation/secret";

/// A process that seals and opens, as it announced itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    /// Id of the process, chosen at each start.
    pub id: String,
    pub keys: Vec<String>,
    /// Id of the master key that it seals with; `None` until it is known.
    pub seals_with: Option<String>,
    /// Time of the announcement, by the clock of the process.
    pub seen_at: Timestamp,
}

/// The store of the installation secret. A process that can open it has the right master key. All processes seal with
/// the master key that it is sealed with.
#[async_trait]
pub trait VaultRepository: Send + Sync + 'static {
    /// The installation secret, sealed with context [`INSTALLATION_SECRET_CONTEXT`]; `None` before the first start.
    async fn installation(&self) -> Result<Option<Sealed>, StoreError>;
    /// Stores the installation secret if there is none, and returns the stored one. Of several concurrent first starts
    /// one wins, and all get its record.
    async fn create_installation(
        &self,
        sealed: &Sealed,
        at: Timestamp,
    ) -> Result<Sealed, StoreError>;
    /// Replaces `before` by `after`; `Stale` if another value is stored.
    async fn replace_installation(
        &self,
        before: &Sealed,
        after: &Sealed,
        at: Timestamp,
    ) -> Result<(), StoreError>;
    /// Stores the announcement of a process, in place of its former one.
    async fn announce(&self, holder: &KeyHolder) -> Result<(), StoreError>;
    /// Deletes the announcement of a process, if there is one.
    async fn withdraw(&self, holder: &str) -> Result<(), StoreError>;
    /// The processes that announced themselves at `since` or later, by id.
    async fn list_holders(&self, since: Timestamp) -> Result<Vec<KeyHolder>, StoreError>;
    /// Deletes at most `limit` announcements from before `before`; returns how many.
    async fn prune_holders(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// What the installation secret keys: hashes for the comparison of texts, and tokens. Without the secret they reveal nothing.
/// Neither changes with the master key.
pub trait Fingerprints: Send + Sync + 'static {
    /// The fingerprint of a text for a purpose. It does not change with the master key. At most 100 ASCII characters.
    fn fingerprint(&self, purpose: &str, text: &[u8]) -> String;
    /// A text of base64url that [`Fingerprints::open_token`] opens for the same context only. Equal secrets give equal
    /// tokens.
    fn seal_token(&self, context: &str, secret: &SecretString) -> Result<String, CipherError>;
    /// The secret of a token. `Damaged` if it was changed, or sealed for another context or by another installation.
    fn open_token(&self, context: &str, token: &str) -> Result<SecretString, CipherError>;
}
