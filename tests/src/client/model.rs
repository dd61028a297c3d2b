//! The parts of responses that suites read, as texts.

use serde::Deserialize;
use serde_json::Value;

/// A start task.
#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// WORKING, …, READY or ERROR.
    pub status: String,
    /// Cause of a failure, or notes.
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
    /// The sandbox that it runs in.
    pub sandbox_id: String,
    /// Its title.
    pub title: Option<String>,
    /// STARTING, RUNNING, PAUSED, ERROR, MISSING.
    pub sandbox_status: String,
    /// idle, running, finished, …
    pub execution_status: Option<String>,
    /// Its URL at the agent server.
    pub conversation_url: Option<String>,
    /// The sandbox's key.
    pub session_api_key: Option<String>,
    /// Its model.
    pub llm_model: Option<String>,
}

/// A sandbox.
#[derive(Debug, Clone, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// STARTING, RUNNING, PAUSED, ERROR, MISSING.
    pub status: String,
    /// Cause of the status.
    #[serde(default)]
    pub status_detail: Option<String>,
    /// Its key, while it runs.
    pub session_api_key: Option<String>,
}

impl From<::client::StartTask> for Task {
    fn from(task: ::client::StartTask) -> Self {
        Self {
            id: task.id,
            status: task.status.to_string(),
            detail: task.detail,
            app_conversation_id: task.app_conversation_id,
            sandbox_id: task.sandbox_id,
            timings: serde_json::json!(task.timings),
        }
    }
}

impl From<::client::Conversation> for Conversation {
    fn from(it: ::client::Conversation) -> Self {
        Self {
            id: it.id,
            sandbox_id: it.sandbox_id,
            title: it.title,
            sandbox_status: it.sandbox_status.to_string(),
            execution_status: it.execution_status.map(|status| status.to_string()),
            conversation_url: it.conversation_url,
            session_api_key: it.session_api_key.map(|key| key.expose().to_owned()),
            llm_model: it.llm_model,
        }
    }
}

impl From<::client::Sandbox> for Sandbox {
    fn from(it: ::client::Sandbox) -> Self {
        Self {
            id: it.id,
            status: it.status.to_string(),
            status_detail: it.status_detail,
            session_api_key: it.session_api_key.map(|key| key.expose().to_owned()),
        }
    }
}
