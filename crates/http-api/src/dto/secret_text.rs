//! Secrets that their owner may read: redacted everywhere except in the response itself.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// A secret in a response, which may be shared with other responses. `Debug` redacts it; serializing reveals it.
#[derive(Debug, Clone)]
pub(crate) struct SecretText(Arc<SecretString>);

impl SecretText {
    /// The secret in plain text.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<Arc<SecretString>> for SecretText {
    fn from(secret: Arc<SecretString>) -> Self {
        Self(secret)
    }
}

impl From<SecretString> for SecretText {
    fn from(secret: SecretString) -> Self {
        Self(Arc::new(secret))
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}
