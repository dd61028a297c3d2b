//! Conversations: the record of one run of an agent, its metrics and its sandbox.

pub mod pending;
mod port;
mod query;
mod report;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use port::{
    ConversationDeletionRepository, ConversationReportRepository, ConversationRepository,
    PendingAgentDeletion, UnsettledConversation,
};
pub use query::{ConversationChange, ConversationFilter, ConversationOrder};
pub use report::{add_pull_request_number, fold_title};

use crate::agent::kind::AgentKind;
use crate::clock::Timestamp;
use crate::git::GitProvider;
use crate::id::{ConversationId, OwnerId, SandboxId};
use crate::sandbox::Sandbox;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// What the agent is doing, see `docs/reference/wire/conversations.md`.
    ExecutionStatus {
        Idle = "idle",
        /// The agent loop is active.
        Running = "running",
        /// Paused by the user, or its sandbox was.
        Paused = "paused",
        /// An action needs approval.
        WaitingForConfirmation = "waiting_for_confirmation",
        /// Terminal: the agent reports that it is done.
        Finished = "finished",
        /// Terminal: the run failed.
        Error = "error",
        /// Terminal: the agent repeats itself without progress.
        Stuck = "stuck",
        /// Being deleted in the agent server.
        Deleting = "deleting",
    }
}

impl ExecutionStatus {
    /// finished, error or stuck.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Error | Self::Stuck)
    }
}

wire_enum! {
    /// The cause of the start of a conversation.
    Trigger {
        Resolver = "resolver",
        /// The web front end.
        Gui = "gui",
        SuggestedTask = "suggested_task",
        OpenhandsApi = "openhands_api",
        Slack = "slack",
        MicroagentManagement = "microagent_management",
        Jira = "jira",
        JiraDc = "jira_dc",
        Linear = "linear",
        Bitbucket = "bitbucket",
        Automation = "automation",
    }
}

/// Cost and tokens so far: absolute totals as the agent server reports them, not increments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    pub accumulated_cost: f64,
    /// The user's budget in US dollars, as the agent server has it.
    pub max_budget_per_task: Option<f64>,
    pub prompt_tokens: i64,
    /// Tokens received.
    pub completion_tokens: i64,
    /// Tokens read from the provider's cache.
    pub cache_read_tokens: i64,
    /// Tokens written to the provider's cache.
    pub cache_write_tokens: i64,
    pub reasoning_tokens: i64,
    /// Size of the model's context window, in tokens.
    pub context_window: i64,
    /// Tokens of the last turn.
    pub per_turn_token: i64,
}

/// Number of conversations of a sandbox from which on no conversation of its agent server is adopted. A hostile sandbox
/// must not fill its owner's list.
pub const MAX_CONVERSATIONS_FOR_ADOPTION: u32 = 500;

/// Maximum number of pull requests recorded for one conversation.
pub const MAX_PULL_REQUESTS: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Its id, here and in the agent server.
    pub id: ConversationId,
    /// The owner; never changes.
    pub owner: OwnerId,
    /// The sandbox that it runs in; webhooks never change it. The sandbox may be deleted.
    pub sandbox_id: SandboxId,
    pub title: Option<String>,
    /// Whether the agent server's title replaces the stored one: false once a user chose a title.
    pub auto_title: bool,
    /// `owner/repo`.
    pub selected_repository: Option<String>,
    pub selected_branch: Option<String>,
    pub git_provider: Option<GitProvider>,
    pub trigger: Option<Trigger>,
    pub pr_numbers: Vec<i64>,
    pub llm_model: Option<String>,
    pub agent_kind: AgentKind,
    pub metrics: Metrics,
    /// The conversation that it is a sub-conversation of.
    pub parent: Option<ConversationId>,
    /// Whether it may be read without a key. Stored and shown, without effect.
    pub public: Option<bool>,
    pub tags: BTreeMap<String, String>,
    /// Last known status of the agent; `None` before the first report.
    pub execution_status: Option<ExecutionStatus>,
    /// Time of creation; never changes.
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A conversation with its sandbox and sub-conversations, as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationView {
    pub conversation: Conversation,
    /// The sandbox's row; `None` if the sandbox was deleted (shown as MISSING).
    pub sandbox: Option<Sandbox>,
    /// Its sub-conversations, oldest first.
    pub children: Vec<ConversationId>,
}

/// What an agent server reports about a conversation. It is applied to the row, field by field, in the transaction of
/// its events. It never changes owner, sandbox, `created_at`, `public`, or a title that a user chose.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConversationReport {
    /// The agent's status and its time: an older report does not overwrite a newer one.
    pub execution_status: Option<(ExecutionStatus, Timestamp)>,
    /// Totals. A total below the stored one is from an older report and is ignored, field by field.
    pub metrics: Option<Metrics>,
    pub llm_model: Option<String>,
    /// The agent server's title; stored only while `auto_title` is set.
    pub title: Option<String>,
    /// Tags to merge; they replace stored tags of the same name.
    pub tags: BTreeMap<String, String>,
}

impl ConversationReport {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A message for the agent: validated role and content items, in the form of the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageInput {
    /// `user`, `system`, `assistant` or `tool`.
    pub role: String,
    /// Text and image items: `{"type":"text","text":…,"cache_prompt":…}` or `{"type":"image",…}`.
    pub content: Vec<serde_json::Value>,
    /// Whether the agent runs after the message.
    pub run: bool,
}
