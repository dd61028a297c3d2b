//! Start tasks: durable, leased and resumable. The row is committed before the client gets its response.
//!
//! ```text
//! WORKING → WAITING_FOR_SANDBOX → PREPARING_REPOSITORY → RUNNING_SETUP_SCRIPT → SETTING_UP_GIT_HOOKS
//!         → SETTING_UP_SKILLS → STARTING_CONVERSATION → READY          (any step → ERROR)
//! ```
//! A worker claims the task by a lease. Every step is idempotent. Each status is stored before it is published.

mod port;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use port::{
    CLOCK_SKEW_GRACE, ClaimLimit, LeasedStartTask, MAX_UNFINISHED_STARTS, NewStartTask,
    SandboxAssignment, StartQueueCounts, StartTaskFilter, StartTaskInsertOutcome, StartTaskOrder,
    StartTaskQueue, StartTaskRepository, StartTaskUpdate,
};

use crate::clock::Timestamp;
use crate::conversation::{MessageInput, Trigger};
use crate::encryption::cipher::Sealed;
use crate::git::GitProvider;
use crate::id::{ConversationId, HostId, OwnerId, SandboxId, StartTaskId};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Status of a start, see `docs/reference/wire/start-tasks.md`.
    StartStatus {
        /// Accepted; a sandbox is being chosen or started.
        Working = "WORKING",
        /// Waiting until the agent server answers.
        WaitingForSandbox = "WAITING_FOR_SANDBOX",
        /// Workspace and repository.
        PreparingRepository = "PREPARING_REPOSITORY",
        /// `.openhands/setup.sh`.
        RunningSetupScript = "RUNNING_SETUP_SCRIPT",
        SettingUpGitHooks = "SETTING_UP_GIT_HOOKS",
        SettingUpSkills = "SETTING_UP_SKILLS",
        /// The agent server creates the conversation.
        StartingConversation = "STARTING_CONVERSATION",
        Ready = "READY",
        /// It failed; `detail` says why.
        Error = "ERROR",
    }
}

impl StartStatus {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }

    /// Whether a task in this status may change to `to`: only forward, to ERROR from every status that is not terminal,
    /// and never out of a terminal one. The same status is allowed, because a resumed step stores it again.
    pub fn can_transition_to(self, to: Self) -> bool {
        !self.is_terminal() && to >= self
    }
}

wire_enum! {
    #[derive(Default)]
    AgentType {
        /// The coding agent.
        #[default]
        Default = "default",
        /// The planning agent.
        Plan = "plan",
    }
}

/// The request of the client. It contains the names of secrets, not their values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StartRequest {
    pub sandbox_id: Option<SandboxId>,
    pub conversation_id: Option<ConversationId>,
    pub initial_message: Option<MessageInput>,
    /// Appended to the system prompt.
    pub system_message_suffix: Option<String>,
    /// Callback processors as sent; `None` means the default (automatic title).
    pub processors: Option<Vec<Value>>,
    /// Replaces the model of the settings.
    pub llm_model: Option<String>,
    /// The agent profile; `None` for the active one.
    pub agent_profile_id: Option<String>,
    /// `owner/repo`.
    pub selected_repository: Option<String>,
    pub selected_branch: Option<String>,
    pub git_provider: Option<GitProvider>,
    /// Suggested task as sent.
    pub suggested_task: Option<Value>,
    pub title: Option<String>,
    pub trigger: Option<Trigger>,
    pub pr_number: Vec<i64>,
    pub parent_conversation_id: Option<ConversationId>,
    pub agent_type: AgentType,
    pub public: Option<bool>,
    pub plugins: Option<Vec<Value>>,
    /// Hosts to which the sandbox is limited; `None` for those of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_allow: Option<Vec<String>>,
    /// Name of the directory in the workspace that the agent works in, so that the conversations of a shared sandbox do
    /// not interfere; `None` is the workspace itself. The service chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Trace context of the request as headers by name (`traceparent`, `tracestate`), so that the worker of any process
    /// continues the trace. The service sets it; responses do not contain it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trace: BTreeMap<String, String>,
    /// Names of the request's secrets; [`StartTask::sealed_secrets`] holds the values.
    pub secret_names: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StartTask {
    pub id: StartTaskId,
    pub owner: OwnerId,
    /// The host of its sandbox: only workers of this host may claim it.
    pub host: HostId,
    pub status: StartStatus,
    /// Why it failed; in READY, the joined notes.
    pub detail: Option<String>,
    /// What the start left out or changed without failing.
    pub notes: Vec<String>,
    /// The conversation's id, chosen when the task is created; clients see it in READY.
    pub conversation_id: ConversationId,
    /// The sandbox's id, chosen when the task is created; clients see it from `WAITING_FOR_SANDBOX` on.
    pub sandbox_id: SandboxId,
    /// Whether the sandbox was created for this task and is deleted if the task fails.
    pub owns_sandbox: bool,
    /// Address of the agent server; clients see it from `STARTING_CONVERSATION` on.
    pub agent_server_url: Option<String>,
    /// The request, with what it inherits from the parent conversation.
    pub request: StartRequest,
    /// The request's secrets: JSON object name → value, sealed with context [`StartTask::secrets_context`]; erased when
    /// the task ends.
    pub sealed_secrets: Option<Sealed>,
    /// Milliseconds spent in each status, by its wire name.
    pub timings: BTreeMap<String, u64>,
    pub attempts: u32,
    pub created_at: Timestamp,
    /// Time of the last change of its status.
    pub updated_at: Timestamp,
}

impl StartTask {
    /// Associated data of its sealed secrets.
    pub fn secrets_context(id: StartTaskId) -> String {
        format!("start-task/{id}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_only_moves_forward_and_ends_once() {
        use StartStatus::{Error, Ready, StartingConversation, Working};
        assert!(Working.can_transition_to(Working));
        assert!(Working.can_transition_to(StartingConversation));
        assert!(Working.can_transition_to(Error));
        assert!(StartingConversation.can_transition_to(Ready));
        assert!(!StartingConversation.can_transition_to(Working));
        for (_, to) in StartStatus::ALL {
            assert!(!Ready.can_transition_to(*to));
            assert!(!Error.can_transition_to(*to));
        }
    }
}
