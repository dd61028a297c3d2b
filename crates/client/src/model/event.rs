//! Events.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::Document;

/// An event as the agent server wrote it. Its `Debug` shows its kind, not its content.
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

    /// Its kind, e.g. `MessageEvent`.
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// Its time in the agent server's notation.
    pub fn timestamp(&self) -> &str {
        self.text("timestamp")
    }

    /// Another member; `null` if it is missing.
    pub fn member(&self, name: &str) -> &Value {
        self.0.member(name)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.id())
    }
}

/// A filter of events.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub kind: Option<String>,
    /// Only from this time on.
    pub from: Option<DateTime<Utc>>,
    /// Only before this time.
    pub until: Option<DateTime<Utc>>,
}
