//! Start tasks: durable, leased, resumable. The row is committed before the client is answered.
//!
//! ```text
//! WORKING → WAITING_FOR_SANDBOX → PREPARING_REPOSITORY → RUNNING_SETUP_SCRIPT → SETTING_UP_GIT_HOOKS
//!         → SETTING_UP_SKILLS → STARTING_CONVERSATION → READY          (any step → ERROR)
//! ```
//! A worker claims the task by lease, every step is idempotent, and each status is stored before it is published.

mod port;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use port::{
    CLOCK_SKEW_GRACE, ClaimLimit, LeasedStartTask, StartTaskInsertOutcome, MAX_UNFINISHED_STARTS, NewStartTask, PARENT_CONVERSATION_ENTITY, SandboxAssignment,
    StartQueueCounts, StartTaskFilter, StartTaskOrder, StartTaskRepository, StartTaskUpdate,
};

use crate::cipher::Sealed;
use crate::clock::Timestamp;
use crate::conversation::{GitProvider, MessageInput, Trigger, wire_enum};
use crate::id::{ConversationId, HostId, SandboxId, StartTaskId, UserId};

wire_enum! {
    /// How far a start has come (contract v1, section 4.1).
    StartStatus {
        /// Accepted; a sandbox is being chosen or started.
        Working = "WORKING",
        /// Waiting until the agent server answers.
        WaitingForSandbox = "WAITING_FOR_SANDBOX",
        /// Workspace and repository.
        PreparingRepository = "PREPARING_REPOSITORY",
        /// `.openhands/setup.sh`.
        RunningSetupScript = "RUNNING_SETUP_SCRIPT",
        /// Git hooks.
        SettingUpGitHooks = "SETTING_UP_GIT_HOOKS",
        /// Skills.
        SettingUpSkills = "SETTING_UP_SKILLS",
        /// The agent server is told.
        StartingConversation = "STARTING_CONVERSATION",
        /// The conversation is there.
        Ready = "READY",
        /// It failed; `detail` says why.
        Error = "ERROR",
    }
}

impl StartStatus {
    /// READY or ERROR.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }

    /// Whether a task in this status may become `to`: forward only, from anywhere to ERROR, never out of a terminal
    /// one. The same status again is allowed (a resumed step says it once more).
    pub fn can_transition_to(self, to: Self) -> bool {
        !self.is_terminal() && to >= self
    }
}

wire_enum! {
    /// Which agent.
    AgentType {
        /// The coding agent.
        Default = "default",
        /// The planning agent.
        Plan = "plan",
    }
}

/// What the client asked for. Secret values are not in it, only their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartRequest {
    /// Run in this sandbox.
    pub sandbox_id: Option<SandboxId>,
    /// Use this id.
    pub conversation_id: Option<ConversationId>,
    /// First message.
    pub initial_message: Option<MessageInput>,
    /// Appended to the system prompt.
    pub system_message_suffix: Option<String>,
    /// Callback processors as sent; `None` means the default (automatic title).
    pub processors: Option<Vec<Value>>,
    /// Instead of the model in the settings.
    pub llm_model: Option<String>,
    /// Agent profile (stored, without effect here).
    pub agent_profile_id: Option<String>,
    /// `owner/repo`.
    pub selected_repository: Option<String>,
    /// Branch.
    pub selected_branch: Option<String>,
    /// Provider.
    pub git_provider: Option<GitProvider>,
    /// Suggested task as sent.
    pub suggested_task: Option<Value>,
    /// Title.
    pub title: Option<String>,
    /// Trigger.
    pub trigger: Option<Trigger>,
    /// Pull requests.
    pub pr_number: Vec<i64>,
    /// Parent.
    pub parent_conversation_id: Option<ConversationId>,
    /// Agent.
    pub agent_type: AgentType,
    /// Public flag.
    pub public: Option<bool>,
    /// Plugins as sent.
    pub plugins: Option<Vec<Value>>,
    /// Name of a directory in the workspace in which the agent works, so that the conversations of a sandbox do not meet;
    /// `None`: the workspace itself. Ours to choose, never the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The trace that the request was part of, as headers by their names (`traceparent`, `tracestate`), so that whichever
    /// process works on the start goes on with it. Ours to note, and told to nobody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trace: BTreeMap<String, String>,
    /// Names of the secrets that came with the request; the values are sealed in [`StartTask::sealed_secrets`].
    pub secret_names: Option<Vec<String>>,
}

impl Default for StartRequest {
    fn default() -> Self {
        Self {
            sandbox_id: None,
            conversation_id: None,
            initial_message: None,
            system_message_suffix: None,
            processors: None,
            llm_model: None,
            agent_profile_id: None,
            selected_repository: None,
            selected_branch: None,
            git_provider: None,
            suggested_task: None,
            title: None,
            trigger: None,
            pr_number: Vec::new(),
            parent_conversation_id: None,
            agent_type: AgentType::Default,
            public: None,
            plugins: None,
            directory: None,
            trace: BTreeMap::new(),
            secret_names: None,
        }
    }
}

/// One start task.
#[derive(Debug, Clone, PartialEq)]
pub struct StartTask {
    /// Its id.
    pub id: StartTaskId,
    /// Who asked.
    pub owner: UserId,
    /// Where its sandbox lives: only workers that serve this host may claim it.
    pub host: HostId,
    /// How far it has come.
    pub status: StartStatus,
    /// Why it failed, or (in READY) the notes joined.
    pub detail: Option<String>,
    /// What did not go as asked without stopping the start.
    pub notes: Vec<String>,
    /// The conversation's id, decided when the task is made; clients see it in READY.
    pub conversation_id: ConversationId,
    /// The sandbox's id, decided when the task is made; clients see it from `WAITING_FOR_SANDBOX` on.
    pub sandbox_id: SandboxId,
    /// Whether the sandbox was made for this task (and goes with it when it fails).
    pub owns_sandbox: bool,
    /// Where the agent server is; clients see it from `STARTING_CONVERSATION` on.
    pub agent_server_url: Option<String>,
    /// What was asked, after inheritance from the parent.
    pub request: StartRequest,
    /// The request's secrets: JSON object name → value, sealed with context [`StartTask::secrets_context`]; erased when
    /// the task ends.
    pub sealed_secrets: Option<Sealed>,
    /// Milliseconds spent in each status so far, by its wire name.
    pub timings: BTreeMap<String, u64>,
    /// How often a worker has claimed it.
    pub attempts: u32,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its status last changed.
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
    fn a_task_only_goes_forward_and_ends_once() {
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
