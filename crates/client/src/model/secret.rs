//! Secret texts, and the user's named secrets.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A secret text. `Debug` hides it; JSON contains it in plain text for the service.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<SecretString>) -> Self {
        Self(text.into())
    }

    /// The plain text.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretName {
    /// Its name, also in sandboxes.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
}

/// A secret to save.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewSecret {
    /// Letters, digits and `_`.
    pub name: String,
    /// The secret value.
    pub value: Secret,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A change of a secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretChange {
    /// The new name.
    pub name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Secret>,
}

/// The service's message about an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionResponse {
    /// The text.
    pub message: String,
}

/// A successful action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuccessResponse {
    /// Always true.
    pub success: bool,
}
