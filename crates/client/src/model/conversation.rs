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
    /// The owner.
    pub created_by_user_id: Option<String>,
    /// The sandbox.
    pub sandbox_id: String,
    /// The repository, `owner/name`.
    pub selected_repository: Option<String>,
    /// The branch at the start.
    pub selected_branch: Option<String>,
    /// The git provider of the repository.
    pub git_provider: Option<GitProvider>,
    /// The title.
    pub title: Option<String>,
    /// What triggered the conversation.
    pub trigger: Option<Trigger>,
    /// Related pull requests.
    pub pr_number: Vec<i64>,
    /// The model.
    pub llm_model: Option<String>,
    /// The kind of the agent.
    pub agent_kind: String,
    /// Costs and tokens.
    pub metrics: Metrics,
    /// The parent conversation.
    pub parent_conversation_id: Option<String>,
    /// The sub-conversations.
    pub sub_conversation_ids: Vec<String>,
    /// Whether the conversation is public.
    pub public: Option<bool>,
    /// Tags that clients set.
    pub tags: BTreeMap<String, String>,
    /// The time of the request to start it.
    #[serde(with = "super::time")]
    pub created_at: DateTime<Utc>,
    /// The time of the last change.
    #[serde(with = "super::time")]
    pub updated_at: DateTime<Utc>,
    /// The status of the sandbox.
    pub sandbox_status: SandboxStatus,
    /// The status of the agent, while it is known.
    pub execution_status: Option<ExecutionStatus>,
    /// The URL at the agent server, while the sandbox runs.
    pub conversation_url: Option<String>,
    /// The session key of the sandbox, while it runs.
    pub session_api_key: Option<Secret>,
    /// The ACP program, if it is the agent.
    pub acp_server: Option<String>,
    /// The agent profile of the start.
    pub launched_agent_profile: Option<LaunchedAgentProfile>,
}

/// Costs and tokens of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The model.
    pub model_name: String,
    /// Cost in the provider's currency, usually USD.
    pub accumulated_cost: f64,
    /// The budget, in the same currency.
    pub max_budget_per_task: Option<f64>,
    /// The used tokens.
    pub accumulated_token_usage: TokenUsage,
}

/// Used tokens.
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

/// The agent profile with which a conversation was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchedAgentProfile {
    /// The id of the profile.
    pub agent_profile_id: String,
    /// The revision of the profile.
    pub revision: i64,
}

/// A filter of conversations.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Only with this text in the title.
    pub title_contains: Option<String>,
    /// Only of this sandbox.
    pub sandbox_id: Option<String>,
    /// Created at this time or later.
    pub created_from: Option<DateTime<Utc>>,
    /// Created before this time.
    pub created_until: Option<DateTime<Utc>>,
    /// Changed at this time or later.
    pub updated_from: Option<DateTime<Utc>>,
    /// Changed before this time.
    pub updated_until: Option<DateTime<Utc>>,
    /// Also sub-conversations.
    pub with_parts: bool,
}

/// A change of a conversation: `None` keeps a member, `Some(None)` clears it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationChange {
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// Whether the conversation is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<Option<bool>>,
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_repository: Option<Option<String>>,
    /// The branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_branch: Option<Option<String>>,
    /// The git provider of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<Option<GitProvider>>,
}
