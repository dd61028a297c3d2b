//! Secrets that their owner may see: redacted everywhere but in the answer itself.

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// A secret in an answer. `Debug` does not show it; serialising does.
#[derive(Debug, Clone)]
pub struct Shown(pub SecretString);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

/// What stands in place of a secret that is not shown.
pub const MASK: &str = "**********";
