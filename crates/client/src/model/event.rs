//! Events.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::Document;

/// An event, as the agent server wrote it. Its `Debug` shows what it is, not what it says.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Event(pub Document);

impl Event {
    fn text(&self, name: &str) -> &str {
        self.0.member(name).as_str().unwrap_or_default()
    }

    /// Its id.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// What it is, e.g. `MessageEvent`.
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// When it happened, in the agent server's words.
    pub fn timestamp(&self) -> &str {
        self.text("timestamp")
    }

    /// Another member; `null` if there is none.
    pub fn member(&self, name: &str) -> &Value {
        self.0.member(name)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.id())
    }
}

/// Which events.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only of this kind.
    pub kind: Option<String>,
    /// Not before.
    pub from: Option<DateTime<Utc>>,
    /// Before.
    pub until: Option<DateTime<Utc>>,
}
