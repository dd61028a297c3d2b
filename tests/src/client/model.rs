//! The parts of the answers that suites look at.

use serde::Deserialize;
use serde_json::Value;

/// A start task.
#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// WORKING … READY, ERROR.
    pub status: String,
    /// Cause or notes.
    pub detail: Option<String>,
    /// The conversation, once it is known.
    pub app_conversation_id: Option<String>,
    /// The sandbox.
    pub sandbox_id: Option<String>,
    /// Milliseconds by step.
    #[serde(default)]
    pub timings: Value,
}

/// A conversation.
#[derive(Debug, Clone, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: String,
    /// Where it runs.
    pub sandbox_id: String,
    /// What it is called.
    pub title: Option<String>,
    /// STARTING, RUNNING, PAUSED, ERROR, MISSING.
    pub sandbox_status: String,
    /// idle, running, finished, …
    pub execution_status: Option<String>,
    /// Where its agent server serves it.
    pub conversation_url: Option<String>,
    /// The sandbox's key.
    pub session_api_key: Option<String>,
    /// Which model.
    pub llm_model: Option<String>,
}

/// A sandbox.
#[derive(Debug, Clone, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// STARTING, RUNNING, PAUSED, ERROR, MISSING.
    pub status: String,
    /// Why.
    #[serde(default)]
    pub status_detail: Option<String>,
    /// Its key, while it runs.
    pub session_api_key: Option<String>,
}
