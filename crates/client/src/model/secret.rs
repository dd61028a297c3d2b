//! Secret texts, and the user's named secrets.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

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
    pub name: String,
    pub description: Option<String>,
    /// The hosts to which the service sends the value; sandboxes have a placeholder. Empty: sandboxes have the value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whether agents get the value. Only in searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed: Option<bool>,
}

/// A secret to save.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewSecret {
    /// Letters, digits and `_`.
    pub name: String,
    pub value: Secret,
    pub description: Option<String>,
    /// Hosts such as `api.example.org` or `*.example.org:8443`, see [`SecretName::hosts`]. `None` keeps the stored ones.
    pub hosts: Option<Vec<String>>,
    /// Whether agents get the value; `None`: as the hosts say.
    pub exposed: Option<bool>,
}

/// A change of a secret.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretChange {
    pub name: String,
    pub description: Option<String>,
    /// The new hosts; `None` keeps the stored ones.
    pub hosts: Option<Vec<String>>,
    /// As in [`NewSecret::exposed`].
    pub exposed: Option<bool>,
    pub value: Option<Secret>,
}

/// The service's message about an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionResponse {
    pub message: String,
}

/// A successful action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuccessResponse {
    pub success: bool,
}
