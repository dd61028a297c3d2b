//! Starts of conversations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::document::Document;
use super::message::Message;
use super::secret::Secret;
use super::string_enums::{AgentType, GitProvider, StartStatus, Trigger};

/// What to start. Everything may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    /// In this sandbox; else in one that the service chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The id that it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// What is said first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_message: Option<Message>,
    /// Added to what the agent is told about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_message_suffix: Option<String>,
    /// What happens on its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<Processor>>,
    /// Which model, if not that of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_model: Option<String>,
    /// Which profile of agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_profile_id: Option<String>,
    /// `owner/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_repository: Option<String>,
    /// Of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_branch: Option<String>,
    /// Where the repository is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<GitProvider>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_task: Option<SuggestedTask>,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Pull requests that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pr_number: Option<Vec<i64>>,
    /// The conversation that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_conversation_id: Option<String>,
    /// Which agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<AgentType>,
    /// Whether everybody may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// What is added to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Vec<Plugin>>,
    /// Secrets of this conversation; answers show them masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, Secret>>,
}

impl StartRequest {
    /// A conversation that begins with this.
    #[must_use]
    pub fn saying(text: impl Into<String>) -> Self {
        Self {
            initial_message: Some(Message::text(text)),
            ..Self::default()
        }
    }
}

/// Something that happens on events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// What.
    pub kind: String,
}

/// Something to do at a git provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedTask {
    /// Where.
    pub git_provider: GitProvider,
    /// What kind of thing.
    pub task_type: String,
    /// In which repository.
    pub repo: String,
    /// The number of the issue or pull request.
    pub issue_number: i64,
    /// Its title.
    pub title: String,
}

/// Something that is added to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    /// Where it is.
    pub source: String,
    /// Which state of it.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Where in its repository.
    pub repo_path: Option<String>,
    /// What it is started with.
    pub parameters: Option<Document>,
}

/// A start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartTask {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub created_by_user_id: Option<String>,
    /// How far it is.
    pub status: StartStatus,
    /// What it is doing, or why it failed.
    pub detail: Option<String>,
    /// The conversation, once it is known.
    pub app_conversation_id: Option<String>,
    /// The sandbox, once it is known.
    pub sandbox_id: Option<String>,
    /// Where its agent server is, once it runs.
    pub agent_server_url: Option<String>,
    /// What was asked for, secrets masked.
    pub request: StartRequest,
    /// When it was asked for.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// When it changed.
    #[serde(with = "super::time")]
    pub updated_at: DateTime<Utc>,
    /// What did not work and did not matter enough to stop.
    pub notes: Vec<String>,
    /// Milliseconds by step.
    pub timings: BTreeMap<String, u64>,
}
