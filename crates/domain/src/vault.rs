//! The installation's own secret, the master key that is in use, and who has which master key.
//!
//! ```text
//!   master key ──seals──► installation secret (one record in the store) ──keys──► fingerprints
//!        ▲                        │
//!        └── the key id in it: what every process that shares the store seals with
//! ```

use async_trait::async_trait;

use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::error::StoreError;

/// Associated data of the installation's secret.
pub const INSTALLATION_SECRET_CONTEXT: &str = "installation/secret";

/// A process that seals and opens, as it last said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    /// Which process: chosen anew at each start.
    pub id: String,
    /// Ids of the master keys that it has.
    pub keys: Vec<String>,
    /// Id of the one that it seals with; `None` while it does not know yet.
    pub seals_with: Option<String>,
    /// When it said so, by its own clock.
    pub seen_at: Timestamp,
}

/// Where the installation's secret is kept. Opening it proves that a process has the right master key, on whatever machine
/// it runs, and the key that it is sealed with is the key that all of them seal with.
#[async_trait]
pub trait VaultRepository: Send + Sync + 'static {
    /// The installation's secret, sealed with context [`INSTALLATION_SECRET_CONTEXT`]; `None` before the first start.
    async fn installation(&self) -> Result<Option<Sealed>, StoreError>;
    /// Stores it if there is none. Answers what is stored then: of several first starts one wins, and all get its record.
    async fn create_installation(
        &self,
        sealed: &Sealed,
        at: Timestamp,
    ) -> Result<Sealed, StoreError>;
    /// Puts `after` in place of `before`; `Stale` if something else is stored.
    async fn replace_installation(
        &self,
        before: &Sealed,
        after: &Sealed,
        at: Timestamp,
    ) -> Result<(), StoreError>;
    /// Stores what a process says of itself, in place of what it said before.
    async fn announce(&self, holder: &KeyHolder) -> Result<(), StoreError>;
    /// Forgets a process; nothing if it is not known.
    async fn withdraw(&self, holder: &str) -> Result<(), StoreError>;
    /// The processes that said something at `since` or later, by id.
    async fn list_holders(&self, since: Timestamp) -> Result<Vec<KeyHolder>, StoreError>;
    /// Deletes what processes said before, at most `limit`; how many there were.
    async fn prune_holders(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// Hashes by which two texts can be compared, and which tell nobody without the installation's secret what the texts were.
pub trait Fingerprints: Send + Sync + 'static {
    /// The same for the same purpose and text, also after the master key was rotated. At most 100 ASCII characters.
    fn fingerprint(&self, purpose: &str, text: &[u8]) -> String;
}
