//! Secrets that their owner may read: redacted everywhere except in the response itself.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// A secret in a response. `Debug` redacts it; serializing reveals it.
#[derive(Debug, Clone)]
pub enum SecretText {
    /// Created for this response.
    Own(SecretString),
    /// Shared with other responses.
    Shared(Arc<SecretString>),
}

impl SecretText {
    /// The secret in clear.
    pub fn expose(&self) -> &str {
        match self {
            Self::Own(secret) => secret.expose_secret(),
            Self::Shared(secret) => secret.expose_secret(),
        }
    }
}

impl From<Arc<SecretString>> for SecretText {
    fn from(secret: Arc<SecretString>) -> Self {
        Self::Shared(secret)
    }
}

impl From<SecretString> for SecretText {
    fn from(secret: SecretString) -> Self {
        Self::Own(secret)
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

/// Replaces a secret that is not revealed.
pub const MASK: &str = "**********";
