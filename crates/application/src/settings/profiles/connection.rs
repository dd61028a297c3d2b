//! Connections to model providers as they are stored.

use std::fmt;

use domain::clock::Timestamp;
use domain::id::ProviderConnectionId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::super::secret::read_secret;

/// An endpoint of a model provider and its key.
#[derive(Clone)]
pub struct ProviderConnection {
    pub id: ProviderConnectionId,
    pub display_name: String,
    /// The provider's name, for people.
    pub provider: String,
    /// `None`: the endpoint of the profile, or the vendor's own.
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl fmt::Debug for ProviderConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConnection")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ProviderConnection {
    pub(super) fn read(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let time = |key: &str| {
            entry
                .get(key)
                .and_then(Value::as_i64)
                .map(Timestamp::from_micros)
        };
        Some(Self {
            id: text("id")?.parse().ok()?,
            display_name: text("display_name")?,
            provider: text("provider")?,
            base_url: text("base_url"),
            api_key: entry.get("api_key").and_then(read_secret),
            created_at: time("created_at")?,
            updated_at: time("updated_at")?,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "display_name": self.display_name,
            "provider": self.provider,
            "base_url": self.base_url,
            "api_key": self.api_key.as_ref().map(ExposeSecret::expose_secret),
            "created_at": self.created_at.micros(),
            "updated_at": self.updated_at.micros(),
        })
    }
}
