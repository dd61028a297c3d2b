//! App conversations: the record of one agent conversation, its metrics and where it runs.

mod observe;
mod port;
mod query;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use observe::{add_pull_request_number, fold_title};
pub use port::{ConversationRepository, PendingAgentDeletion, UnsettledConversation};
pub use query::{ConversationChange, ConversationFilter};

use crate::clock::Timestamp;
use crate::id::{ConversationId, SandboxId, UserId};
use crate::sandbox::Sandbox;

/// Defines an enum whose values have one fixed spelling on the wire and in stores.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value with its spelling, in the order in which error texts name them.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($text, Self::$variant),)*];
            /// The fixed spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::id::InvalidId;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
                    .ok_or($crate::id::InvalidId { kind: stringify!($name), expected: "a known value" })
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.serialize_str(self.as_str()) }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// What the agent is doing (contract v1, section 4.3).
    ExecutionStatus {
        /// Ready, no run yet.
        Idle = "idle",
        /// The agent loop is active.
        Running = "running",
        /// Paused by the user, or its sandbox was.
        Paused = "paused",
        /// An action needs approval.
        WaitingForConfirmation = "waiting_for_confirmation",
        /// Terminal: the agent says it is done.
        Finished = "finished",
        /// Terminal: the run failed.
        Error = "error",
        /// Terminal: the agent goes in circles.
        Stuck = "stuck",
        /// Being deleted in the agent server.
        Deleting = "deleting",
    }
}

impl ExecutionStatus {
    /// finished, error, stuck.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Error | Self::Stuck)
    }
}

wire_enum! {
    /// Git hosts that tokens and repositories may name.
    GitProvider {
        /// github.com or an Enterprise Server.
        Github = "github",
        /// gitlab.com or self-managed.
        Gitlab = "gitlab",
        /// bitbucket.org.
        Bitbucket = "bitbucket",
        /// Bitbucket Data Center.
        BitbucketDataCenter = "bitbucket_data_center",
        /// Forgejo or Gitea.
        Forgejo = "forgejo",
        /// Azure DevOps.
        AzureDevops = "azure_devops",
        /// A single-sign-on token.
        EnterpriseSso = "enterprise_sso",
    }
}

wire_enum! {
    /// What caused the conversation to be started.
    Trigger {
        /// The resolver.
        Resolver = "resolver",
        /// The web front end.
        Gui = "gui",
        /// A suggested task.
        SuggestedTask = "suggested_task",
        /// An API client.
        OpenhandsApi = "openhands_api",
        /// Slack.
        Slack = "slack",
        /// Microagent management.
        MicroagentManagement = "microagent_management",
        /// Jira.
        Jira = "jira",
        /// Jira Data Center.
        JiraDc = "jira_dc",
        /// Linear.
        Linear = "linear",
        /// Bitbucket.
        Bitbucket = "bitbucket",
        /// An automation.
        Automation = "automation",
    }
}

/// Cost and tokens so far. Absolute totals as the agent server reports them, never increments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Cost in US dollars.
    pub accumulated_cost: f64,
    /// The user's budget in US dollars, as the agent server knows it.
    pub max_budget_per_task: Option<f64>,
    /// Tokens sent.
    pub prompt_tokens: i64,
    /// Tokens received.
    pub completion_tokens: i64,
    /// Tokens read from the provider's cache.
    pub cache_read_tokens: i64,
    /// Tokens written to the provider's cache.
    pub cache_write_tokens: i64,
    /// Tokens spent on reasoning.
    pub reasoning_tokens: i64,
    /// Size of the model's context window, in tokens.
    pub context_window: i64,
    /// Tokens of the last turn.
    pub per_turn_token: i64,
}

/// Conversations that one sandbox may have when its agent server brings in one of its own making: a hostile one must
/// not fill its owner's list.
pub const MAX_CONVERSATIONS_FOR_ADOPTION: u32 = 500;

/// Pull requests that are noted of one conversation: agents open them.
pub const MAX_PULL_REQUESTS: usize = 100;

/// The record of one conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Its id, here and in the agent server.
    pub id: ConversationId,
    /// Whose it is; never changes.
    pub owner: UserId,
    /// Where it runs; never changes by webhook. The sandbox may be gone.
    pub sandbox_id: SandboxId,
    /// Shown in lists.
    pub title: Option<String>,
    /// Whether the agent server's own title may replace ours: false once a person chose one.
    pub auto_title: bool,
    /// `owner/repo`.
    pub selected_repository: Option<String>,
    /// Branch.
    pub selected_branch: Option<String>,
    /// Where the repository is.
    pub git_provider: Option<GitProvider>,
    /// What started it.
    pub trigger: Option<Trigger>,
    /// Pull requests it is about.
    pub pr_numbers: Vec<i64>,
    /// The model in use.
    pub llm_model: Option<String>,
    /// `openhands` or `acp`.
    pub agent_kind: String,
    /// Cost and tokens.
    pub metrics: Metrics,
    /// The conversation that this is a part of.
    pub parent: Option<ConversationId>,
    /// Whether it may be read without a key (a later feature; stored and shown).
    pub public: Option<bool>,
    /// Free labels.
    pub tags: BTreeMap<String, String>,
    /// Last known state of the agent; `None` before the first report.
    pub execution_status: Option<ExecutionStatus>,
    /// When it was made; never changes.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
}

/// A conversation with what a list shows beside it, read in one go.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationView {
    /// The record.
    pub conversation: Conversation,
    /// Its sandbox's row; `None` when the sandbox was deleted (shown as MISSING).
    pub sandbox: Option<Sandbox>,
    /// Its sub-conversations, oldest first.
    pub children: Vec<ConversationId>,
}

/// What a report of the agent server says about a conversation: applied to the row, field by field, in the same
/// transaction as the events it came with. Never touches owner, sandbox, `created_at`, `public`, or a chosen title.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConversationReport {
    /// The agent's state, and when the report says it was so: an older report does not overwrite a newer one.
    pub execution_status: Option<(ExecutionStatus, Timestamp)>,
    /// Totals; a total lower than the stored one is from an older report and is ignored field by field.
    pub metrics: Option<Metrics>,
    /// The model now in use.
    pub llm_model: Option<String>,
    /// The agent server's title; stored only while `auto_title` holds.
    pub title: Option<String>,
    /// Tags to merge (these win).
    pub tags: BTreeMap<String, String>,
}

impl ConversationReport {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a client asks to be said to the agent: role and content items, already checked, in the wire's shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageInput {
    /// `user`, `system`, `assistant` or `tool`.
    pub role: String,
    /// Text and image items as the wire has them: `{"type":"text","text":…,"cache_prompt":…}` or `{"type":"image",…}`.
    pub content: Vec<serde_json::Value>,
    /// Whether the agent shall run.
    pub run: bool,
}
