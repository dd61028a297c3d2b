//! Starts of conversations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::document::Document;
use super::message::Message;
use super::secret::Secret;
use super::string_enums::{AgentType, GitProvider, StartStatus, Trigger};
use super::time::UtcTime;

/// A request to start a conversation. All members are optional.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    /// The sandbox; by default the service chooses one.
    pub sandbox_id: Option<String>,
    pub conversation_id: Option<String>,
    pub initial_message: Option<Message>,
    pub system_message_suffix: Option<String>,
    pub processors: Option<Vec<Processor>>,
    /// The model, if it differs from the settings.
    pub llm_model: Option<String>,
    pub agent_profile_id: Option<String>,
    /// `owner/name`.
    pub selected_repository: Option<String>,
    pub selected_branch: Option<String>,
    pub git_provider: Option<GitProvider>,
    pub suggested_task: Option<SuggestedTask>,
    pub title: Option<String>,
    pub trigger: Option<Trigger>,
    pub pr_number: Option<Vec<i64>>,
    pub parent_conversation_id: Option<String>,
    pub agent_type: Option<AgentType>,
    pub public: Option<bool>,
    pub plugins: Option<Vec<Plugin>>,
    /// Hosts to which its new sandbox is limited; by default those in the settings.
    pub egress_allow: Option<Vec<String>>,
    /// Secrets of this conversation; responses mask them.
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
    pub kind: String,
}

/// A task at a git provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedTask {
    pub git_provider: GitProvider,
    pub task_type: String,
    pub repo: String,
    pub issue_number: i64,
    pub title: String,
}

/// A plugin of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    pub source: String,
    /// The revision in its repository.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub repo_path: Option<String>,
    pub parameters: Option<Document>,
}

/// A start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartTask {
    pub id: String,
    pub created_by_user_id: Option<String>,
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
    pub created_at: UtcTime,
    pub updated_at: UtcTime,
    /// Problems that did not stop the start.
    pub notes: Vec<String>,
    /// Milliseconds by step.
    pub timings: BTreeMap<String, u64>,
}
