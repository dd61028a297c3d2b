//! Conversations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::secret::Secret;
use super::string_enums::{ExecutionStatus, GitProvider, SandboxStatus, Trigger};
use super::time::UtcTime;

/// A conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conversation {
    pub id: String,
    pub created_by_user_id: Option<String>,
    pub sandbox_id: String,
    /// The repository, `owner/name`.
    pub selected_repository: Option<String>,
    pub selected_branch: Option<String>,
    pub git_provider: Option<GitProvider>,
    pub title: Option<String>,
    pub trigger: Option<Trigger>,
    pub pr_number: Vec<i64>,
    pub llm_model: Option<String>,
    pub agent_kind: String,
    pub metrics: Metrics,
    pub parent_conversation_id: Option<String>,
    pub sub_conversation_ids: Vec<String>,
    pub public: Option<bool>,
    pub tags: BTreeMap<String, String>,
    /// The time of the request to start it.
    pub created_at: UtcTime,
    pub updated_at: UtcTime,
    pub sandbox_status: SandboxStatus,
    /// The status of the agent, while it is known.
    pub execution_status: Option<ExecutionStatus>,
    /// The URL at the agent server, while the sandbox runs.
    pub conversation_url: Option<String>,
    /// The session key of the sandbox, while it runs.
    pub session_api_key: Option<Secret>,
    /// The ACP program, if it is the agent.
    pub acp_server: Option<String>,
    pub launched_agent_profile: Option<LaunchedAgentProfile>,
    /// Where the agent works; unknown until the sandbox has run, and once it is deleted.
    pub workspace: Option<ConversationWorkspace>,
}

/// Where the agent of a conversation works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationWorkspace {
    /// The absolute path in the sandbox.
    pub working_dir: String,
}

/// Costs and tokens of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub model_name: String,
    /// Cost in the provider's currency, usually USD.
    pub accumulated_cost: f64,
    /// The budget, in the same currency.
    pub max_budget_per_task: Option<f64>,
    pub accumulated_token_usage: TokenUsage,
}

/// Used tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    pub agent_profile_id: String,
    pub revision: i64,
}

/// A filter of conversations.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    pub title_contains: Option<String>,
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
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationChange {
    pub title: Option<Option<String>>,
    pub public: Option<Option<bool>>,
    pub selected_repository: Option<Option<String>>,
    pub selected_branch: Option<Option<String>>,
    pub git_provider: Option<Option<GitProvider>>,
}
