//! Envelope encryption of records, master keys and their files, hashes of passwords, texts of API keys, and random ids.
//!
//! Knows: AES-256-GCM, Argon2id, SHA-256, the operating system's randomness, and files that only their owner may read.
//! Must never know: the content of sealed texts, the store, the environment, or the configuration.
//!
//! ```text
//!   master key ──wraps──► data key (fresh per record) ──encrypts──► secret
//!        │                     │                                      │
//!     key id              random nonce                           random nonce
//!        └──────────────── v1.<key id>.<base64url of all> ────────────┘      context = associated data of both
//! ```

mod api_key;
mod base62;
mod envelope;
mod ids;
mod installation;
mod master_key;
mod passwords;
pub mod private_file;
mod random;

pub use api_key::{ApiKeyText, InvalidApiKey};
pub use envelope::Keyring;
pub use ids::RandomIds;
pub use installation::InstallationKey;
pub use master_key::{MasterKey, MasterKeyError};
pub use passwords::Argon2Passwords;
