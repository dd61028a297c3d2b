//! Sandboxes and their templates.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::string_enums::SandboxStatus;

/// A sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub created_by_user_id: Option<String>,
    /// What it was made from.
    pub sandbox_spec_id: String,
    /// What it is doing.
    pub status: SandboxStatus,
    /// Its key, while it runs.
    pub session_api_key: Option<Secret>,
    /// Where its servers are, while it runs.
    pub exposed_urls: Option<Vec<ExposedUrl>>,
    /// When it was made.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// Why it is in this status, if there is something to say.
    pub status_detail: Option<String>,
}

/// A server in a sandbox.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedUrl {
    /// Which, e.g. `AGENT_SERVER`.
    pub name: String,
    /// Where. May hold a key: `Debug` does not show it.
    pub url: String,
    /// Its port inside.
    pub port: i32,
}

impl fmt::Debug for ExposedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedUrl")
            .field("name", &self.name)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// A template of sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Its id: an image, or a name.
    pub id: String,
    /// What runs in it, if that is not the image's own.
    pub command: Option<Vec<String>>,
    /// Since when it is there.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// The environment that it begins with.
    pub initial_env: BTreeMap<String, Secret>,
    /// Where the agent works.
    pub working_dir: String,
}
