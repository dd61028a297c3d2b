//! Secrets that their owner may see: redacted everywhere but in the answer itself.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// A secret in an answer. `Debug` does not show it; serialising does.
#[derive(Debug, Clone)]
pub enum SecretText {
    /// Made for this answer.
    Own(SecretString),
    /// Kept for other answers, too.
    Shared(Arc<SecretString>),
}

impl SecretText {
    /// For writing it.
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

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

/// What stands in place of a secret that is not shown.
pub const MASK: &str = "**********";
