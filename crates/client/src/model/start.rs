//! Starts of conversations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::document::Document;
use super::message::Message;
use super::secret::Secret;
use super::string_enums::{AgentType, GitProvider, StartStatus, Trigger};

/// A request to start a conversation. All members are optional.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    /// The sandbox; by default the service chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The conversation's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_message: Option<Message>,
    /// A suffix of the agent's system message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_message_suffix: Option<String>,
    /// Processors of its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<Processor>>,
    /// The model, if it differs from the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_model: Option<String>,
    /// The agent profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_profile_id: Option<String>,
    /// `owner/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_repository: Option<String>,
    /// The branch of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_branch: Option<String>,
    /// The git provider of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<GitProvider>,
    /// The suggested task that it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_task: Option<SuggestedTask>,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What triggered the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Related pull requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pr_number: Option<Vec<i64>>,
    /// The parent conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_conversation_id: Option<String>,
    /// The type of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<AgentType>,
    /// Whether the conversation is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// Plugins of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Vec<Plugin>>,
    /// Secrets of this conversation; responses mask them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, Secret>>,
}

impl StartRequest {
    /// A conversation that starts with this text.
    #[must_use]
    pub fn saying(text: impl Into<String>) -> Self {
        Self {
            initial_message: Some(Message::text(text)),
            ..Self::default()
        }
    }
}

/// A processor of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// The kind of the processor.
    pub kind: String,
}

/// A task at a git provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedTask {
    /// The git provider.
    pub git_provider: GitProvider,
    /// The kind of the task.
    pub task_type: String,
    /// The repository.
    pub repo: String,
    /// The number of the issue or pull request.
    pub issue_number: i64,
    /// Its title.
    pub title: String,
}

/// A plugin of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    /// Its source.
    pub source: String,
    /// The revision in its repository.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// The path in its repository.
    pub repo_path: Option<String>,
    /// Its parameters.
    pub parameters: Option<Document>,
}

/// A start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartTask {
    /// Its id.
    pub id: String,
    /// The owner.
    pub created_by_user_id: Option<String>,
    /// Its status.
    pub status: StartStatus,
    /// The current step, or the cause of a failure.
    pub detail: Option<String>,
    /// The conversation, once it is known.
    pub app_conversation_id: Option<String>,
    /// The sandbox, once it is known.
    pub sandbox_id: Option<String>,
    /// The URL of its agent server, once that runs.
    pub agent_server_url: Option<String>,
    /// The request, with masked secrets.
    pub request: StartRequest,
    /// The time of the request.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// The time of the last change.
    #[serde(with = "super::time")]
    pub updated_at: DateTime<Utc>,
    /// Problems that did not stop the start.
    pub notes: Vec<String>,
    /// Milliseconds by step.
    pub timings: BTreeMap<String, u64>,
}
