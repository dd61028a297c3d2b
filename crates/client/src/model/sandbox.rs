//! Sandboxes and their templates.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::string_enums::SandboxStatus;
use super::time::UtcTime;

/// A sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: String,
    pub created_by_user_id: Option<String>,
    pub sandbox_spec_id: String,
    pub status: SandboxStatus,
    /// Its session key, while it runs.
    pub session_api_key: Option<Secret>,
    /// The URLs of its servers, while it runs.
    pub exposed_urls: Option<Vec<ExposedUrl>>,
    pub created_at: UtcTime,
    pub status_detail: Option<String>,
    /// The hosts to which its owner limited it.
    pub egress_allow: Option<Vec<String>>,
}

/// A server in a sandbox.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedUrl {
    /// Its name, e.g. `AGENT_SERVER`.
    pub name: String,
    /// Its URL. May contain a key: `Debug` does not show it.
    pub url: String,
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
    /// Its command, if it replaces the image's own.
    pub command: Option<Vec<String>>,
    pub created_at: UtcTime,
    pub initial_env: BTreeMap<String, Secret>,
    pub working_dir: String,
}
