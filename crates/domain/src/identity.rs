//! Users and their API keys. Only hashes are stored.

use std::fmt;
use std::fmt::Write;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ApiKeyId, UserId};

/// SHA-256 of a key's text, as 64 lower-case hex digits. Looking a key up by its hash makes the comparison constant in
/// time as far as the key is concerned. Used for users' API keys and for sandboxes' session keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub String);

impl KeyHash {
    /// The hash of any key's text: a user's API key, a bootstrap key that the operator made up, a sandbox's session key.
    /// No salt and no slow hash: keys are random, not chosen like passwords, and the hash is what they are looked up by.
    pub fn of(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self(
            digest
                .iter()
                .fold(String::with_capacity(64), |mut hex, byte| {
                    // Writing to a String cannot fail.
                    let _ = write!(hex, "{byte:02x}");
                    hex
                }),
        )
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A user's API key, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Id of the record (for `keys revoke`).
    pub id: ApiKeyId,
    /// Whose key it is.
    pub user: UserId,
    /// Hash of the text.
    pub hash: KeyHash,
    /// The first characters of the text (`aw_` and a few more), to recognise it by.
    pub prefix: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is refused; `None` never.
    pub expires_at: Option<Timestamp>,
    /// When it was last seen, to the minute.
    pub last_used_at: Option<Timestamp>,
}

impl ApiKey {
    /// Whether the key is past its end.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Keys and the users they stand for. A user exists from the first key on.
#[async_trait]
pub trait ApiKeyRepository: Send + Sync + 'static {
    /// Stores a key, and its user when that is new. `Conflict` if the hash (or id) is taken.
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError>;
    /// The key with this hash, also when it is expired (the caller decides).
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError>;
    /// All keys, of one user when named, oldest first.
    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError>;
    /// Deletes the key: it is refused from the next request on. `false` if there is none.
    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError>;
    /// Notes a use. Does nothing if the key is gone.
    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha_256_in_hex() {
        assert_eq!(
            KeyHash::of("abc").0,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
