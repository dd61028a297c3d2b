//! Conversations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::string_enums::{ExecutionStatus, GitProvider, SandboxStatus, Trigger};

/// A conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub created_by_user_id: Option<String>,
    /// Where it runs.
    pub sandbox_id: String,
    /// The repository that it works on.
    pub selected_repository: Option<String>,
    /// The branch that it began with.
    pub selected_branch: Option<String>,
    /// Where the repository is.
    pub git_provider: Option<GitProvider>,
    /// What it is called.
    pub title: Option<String>,
    /// What it came from.
    pub trigger: Option<Trigger>,
    /// Pull requests that it is about.
    pub pr_number: Vec<i64>,
    /// Its model.
    pub llm_model: Option<String>,
    /// Which kind of agent.
    pub agent_kind: String,
    /// What it cost.
    pub metrics: Metrics,
    /// The conversation that it is part of.
    pub parent_conversation_id: Option<String>,
    /// Its parts.
    pub sub_conversation_ids: Vec<String>,
    /// Whether everybody may see it.
    pub public: Option<bool>,
    /// What clients noted.
    pub tags: BTreeMap<String, String>,
    /// When it was asked for.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// When it changed.
    #[serde(with = "super::time")]
    pub updated_at: DateTime<Utc>,
    /// What its sandbox is doing.
    pub sandbox_status: SandboxStatus,
    /// What its agent is doing.
    pub execution_status: Option<ExecutionStatus>,
    /// Where its agent server serves it, while the sandbox runs.
    pub conversation_url: Option<String>,
    /// The sandbox's key, while it runs.
    pub session_api_key: Option<Secret>,
    /// Which agent behind the Agent Client Protocol.
    pub acp_server: Option<String>,
    /// The profile that the agent was started with.
    pub launched_agent_profile: Option<LaunchedAgentProfile>,
}

/// What a conversation cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The model.
    pub model_name: String,
    /// In the provider's currency, usually USD.
    pub accumulated_cost: f64,
    /// What it may cost.
    pub max_budget_per_task: Option<f64>,
    /// Tokens.
    pub accumulated_token_usage: TokenUsage,
}

/// Tokens that were used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the agent server's counters")]
pub struct TokenUsage {
    pub model: String,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub cache_read_tokens: i64,
    pub cache_write_tokens: i64,
    pub reasoning_tokens: i64,
    pub context_window: i64,
    pub per_turn_token: i64,
    pub response_id: String,
}

/// A profile of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchedAgentProfile {
    /// Its id.
    pub agent_profile_id: String,
    /// Which of its states.
    pub revision: i64,
}

/// Which conversations.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Only with this in the title.
    pub title_contains: Option<String>,
    /// Only of this sandbox.
    pub sandbox_id: Option<String>,
    /// Asked for not before.
    pub created_from: Option<DateTime<Utc>>,
    /// Asked for before.
    pub created_until: Option<DateTime<Utc>>,
    /// Changed not before.
    pub updated_from: Option<DateTime<Utc>>,
    /// Changed before.
    pub updated_until: Option<DateTime<Utc>>,
    /// Also those that are parts of others.
    pub with_parts: bool,
}

/// What to change of a conversation: `None` keeps, `Some(None)` clears.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationChange {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// Whether everybody may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<Option<bool>>,
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_repository: Option<Option<String>>,
    /// The branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_branch: Option<Option<String>>,
    /// Where the repository is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<Option<GitProvider>>,
}
