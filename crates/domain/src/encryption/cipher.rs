//! Sealing of stored secrets.

use std::fmt;

use secrecy::SecretString;

use crate::error::{BoxError, Classify, ErrorClass};

/// A sealed secret: ciphertext with everything needed to open it except the master key. Its text is safe to store and
/// to log; its `Debug` shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(String);

impl Sealed {
    /// Wraps the cipher's text form, which has a version and names the master key.
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

/// Why a secret could not be sealed or opened. No text reveals anything about the secret.
#[derive(Debug, thiserror::Error)]
pub enum CipherError {
    /// The value is sealed with a master key that this process does not have.
    #[error("value is sealed with master key {key_id}, which this process does not have")]
    UnknownKey { key_id: String },
    /// The value was changed, truncated, moved to another record, or not sealed by this service.
    #[error("sealed value cannot be opened: it was changed, truncated or moved to another record")]
    Damaged,
    #[error("encryption failed")]
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

/// Authenticated encryption with one data key per record, which the master key wraps. It uses only the CPU and takes a
/// few microseconds.
///
/// `context` (owner and record name, e.g. `alice/settings`) is bound as associated data: a sealed value that was copied
/// to another record does not open there ([`CipherError::Damaged`]).
pub trait Cipher: Send + Sync + 'static {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError>;
    /// Opens a value that [`Cipher::seal`] sealed for the same context.
    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError>;
    /// Whether the value is sealed with another master key than the present one, so that a rotation has work left.
    fn is_outdated(&self, sealed: &Sealed) -> bool;
}
