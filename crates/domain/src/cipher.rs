//! Sealing of secrets at rest.

use std::fmt;

use secrecy::SecretString;

use crate::error::{BoxError, Classify, ErrorClass};

/// A sealed secret: ciphertext with everything needed to open it but the master key. Text, safe to store and to log
/// (its `Debug` still says nothing).
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(String);

impl Sealed {
    /// Wraps the cipher's text form (versioned; names the master key that wrapped it).
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text form, for stores.
    pub fn as_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// Why a secret could not be sealed or opened. Never says anything about the secret.
#[derive(Debug, thiserror::Error)]
pub enum CipherError {
    /// Wrapped by a master key that we do not have.
    #[error("sealed with unknown master key {key_id}")]
    UnknownKey {
        /// Public id of the missing key.
        key_id: String,
    },
    /// Changed, truncated, moved to another record, or not ours.
    #[error("sealed value does not open")]
    Damaged,
    /// The cipher itself failed.
    #[error("cipher failed")]
    Other(#[source] BoxError),
}

impl Classify for CipherError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Internal
    }
    fn public(&self) -> std::borrow::Cow<'_, str> {
        "Internal Server Error".into()
    }
}

/// Authenticated encryption with one data key per record, wrapped by the master key. Pure CPU, a few microseconds.
///
/// `context` (owner and record name, e.g. `alice/settings`) is bound as associated data: a sealed value copied into
/// another record does not open there ([`CipherError::Damaged`]).
pub trait Cipher: Send + Sync + 'static {
    /// Seals a secret for this context.
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError>;
    /// Opens what [`Cipher::seal`] made for the same context.
    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError>;
    /// Whether this value was wrapped by another than the present master key (so rotation has work left).
    fn is_outdated(&self, sealed: &Sealed) -> bool;
}
