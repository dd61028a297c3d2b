//! Conversations: reading, changes, deletion and messages.

pub mod event_streams;
pub mod events;
pub mod export;
mod git_names;
pub mod pending;
pub(crate) mod stream_registry;
pub mod sync;
pub mod webhooks;

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::agent::{AgentError, AgentKind, AgentRuntime, MessageDelivery};
use domain::clock::{Clock, Timestamp};
use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationReport,
    ConversationReportRepository, ConversationRepository, ConversationView, ExecutionStatus,
    MessageInput, Metrics,
};
use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, StoreError};
use domain::id::{ConversationId, HostId, OwnerId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{DesiredState, Sandbox, SandboxRepository, SandboxStatus};
use domain::user::scope::Scope;

pub use git_names::{check_branch, check_change, check_repository};

use crate::sandboxes::{SandboxReconciler, endpoint};
use crate::sync::ConversationSyncer;
use crate::{AppError, BackgroundTasks, Ports};

/// Conversations as their owner sees them. Reads only query the store.
#[derive(Clone)]
pub struct ConversationService {
    conversations: Arc<dyn ConversationRepository>,
    reports: Arc<dyn ConversationReportRepository>,
    sandboxes: Arc<dyn SandboxRepository>,
    agents: Arc<dyn AgentRuntime>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    host: HostId,
    reconciler: SandboxReconciler,
    syncer: ConversationSyncer,
    tasks: BackgroundTasks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    pub sandbox_status: SandboxStatus,
    pub note: Option<String>,
}

impl ConversationService {
    pub(crate) fn new(
        ports: &Ports,
        host: HostId,
        reconciler: SandboxReconciler,
        syncer: ConversationSyncer,
        tasks: BackgroundTasks,
    ) -> Self {
        Self {
            conversations: Arc::clone(&ports.conversations),
            reports: Arc::clone(&ports.conversation_reports),
            sandboxes: Arc::clone(&ports.sandboxes),
            agents: Arc::clone(&ports.agents),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            host,
            reconciler,
            syncer,
            tasks,
        }
    }

    /// A page in the filter's order.
    pub async fn search(
        &self,
        scope: &Scope,
        filter: &ConversationFilter,
        page: &PageRequest,
    ) -> Result<Page<ConversationView>, AppError> {
        Ok(self.conversations.search(scope, filter, page).await?)
    }

    /// How many `search` would find in all.
    pub async fn count(&self, scope: &Scope, filter: &ConversationFilter) -> Result<u64, AppError> {
        Ok(self.conversations.count(scope, filter).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<ConversationView>>, AppError> {
        Ok(self.conversations.find_many(scope, ids).await?)
    }

    /// Changes a conversation. A title that the owner sets ends automatic titles.
    pub async fn update(
        &self,
        scope: &Scope,
        id: ConversationId,
        change: &ConversationChange,
    ) -> Result<ConversationView, AppError> {
        check_change(change).map_err(AppError::invalid)?;
        let now = self.clock.now();
        let updated = self.conversations.update(scope, id, change, now).await?;
        // The text is part of the wire, like those of `delete` and `send_message`.
        updated.ok_or_else(|| AppError::not_found("unknown_app_conversation"))
    }

    /// Deletes the conversation and its sub-conversations. Its sandbox is removed too, unless another conversation
    /// uses it.
    pub async fn delete(&self, scope: &Scope, id: ConversationId) -> Result<(), AppError> {
        let (conversations, now) = (&self.conversations, self.clock.now());
        let missing = || AppError::not_found("Conversation not found");
        let view = conversations.find(scope, id).await?.ok_or_else(missing)?;
        if !conversations.delete(scope, id, now).await? {
            return Err(missing());
        }
        // The intent is committed. After a crash here the next relist does the rest.
        let (this, sandbox) = (self.clone(), view.conversation.sandbox_id);
        self.tasks.spawn(async move {
            let row = this.sandboxes.find(&Scope::System, &sandbox).await;
            let is_deletion_pending =
                |row: &Sandbox| row.desired == DesiredState::Deleted && row.host == this.host;
            if row
                .ok()
                .flatten()
                .is_some_and(|row| is_deletion_pending(&row))
            {
                this.reconciler.cancel_start(&sandbox);
                this.reconciler.converge_soon(&sandbox);
            } else {
                this.syncer.request_agent_deletion();
            }
        });
        Ok(())
    }

    /// Sends a message to the agent. Returns when the agent server has stored it.
    pub async fn send_message(
        &self,
        scope: &Scope,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<SentMessage, AppError> {
        let found = self.conversations.find(scope, id).await?;
        let view = found.ok_or_else(|| {
            AppError::not_found(format!("Conversation {} not found", id.dashed()))
        })?;
        let sandbox = view.sandbox.ok_or_else(|| {
            AppError::not_found(format!(
                "Sandbox not found for conversation {}",
                id.dashed()
            ))
        })?;
        check_accepts_messages(&sandbox)?;
        let url = sandbox.agent_url.as_ref().ok_or_else(|| {
            let detail = "No agent server URL found for sandbox.";
            AppError::refused(ErrorClass::Unavailable, detail)
        })?;
        let endpoint = endpoint(&*self.cipher, &sandbox, url)?;
        // Taken before the call: the run's own reports are later and take precedence.
        let now = self.clock.now();
        let sent = self.agents.send(&endpoint, id, message).await;
        let sent = sent.map_err(map_unknown_conversation)?;
        if sent == MessageDelivery::Delivered && message.run {
            mark_running(&*self.reports, &sandbox.id, id, now).await?;
        }
        let note = (sent == MessageDelivery::RunRefused)
            .then(|| "The message is saved and not started: the sandbox is at its limit of concurrent runs. Send it again when a run ends.".to_owned());
        Ok(SentMessage {
            sandbox_status: sandbox.status,
            note,
        })
    }
}

/// A conversation without reported or chosen values.
pub(crate) fn new_conversation_row(
    id: ConversationId,
    owner: &OwnerId,
    sandbox: &SandboxId,
    now: Timestamp,
) -> Conversation {
    Conversation {
        id,
        owner: owner.clone(),
        sandbox_id: sandbox.clone(),
        title: None,
        auto_title: true,
        selected_repository: None,
        selected_branch: None,
        git_provider: None,
        trigger: None,
        pr_numbers: Vec::new(),
        llm_model: None,
        agent_kind: AgentKind::OpenHands,
        metrics: Metrics::default(),
        parent: None,
        public: None,
        tags: BTreeMap::new(),
        execution_status: None,
        created_at: now,
        updated_at: now,
    }
}

/// Records that the agent runs after a message. `at` is from before the message was sent, so that the run's own
/// reports take precedence.
pub(crate) async fn mark_running(
    reports: &dyn ConversationReportRepository,
    sandbox: &SandboxId,
    id: ConversationId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let running = ConversationReport {
        execution_status: Some((ExecutionStatus::Running, at)),
        ..ConversationReport::default()
    };
    let observed = reports.apply_report(sandbox, id, &running, at);
    observed.await.map(drop)
}

/// The provisional title of a conversation: `Conversation <first five digits>`.
pub fn provisional_title(id: ConversationId) -> String {
    let hex = id.to_string();
    format!("Conversation {}", &hex[..5])
}

/// An agent server that does not know the conversation is a conflict, neither a missing conversation nor a server
/// failure (the reference answers 502). The start may not have reached it yet. Or a newer release of the agent server
/// created it: an older release skips it and leaves it in place.
fn map_unknown_conversation(error: AgentError) -> AppError {
    match error {
        AgentError::NotFound => AppError::conflict(
            "The agent server in this sandbox does not know the conversation. If its start still runs, try again. If a newer \
             release of the agent server created it, set the template's image or `sandbox.agent_server_command` to that release.",
        ),
        error => error.into(),
    }
}

/// Refuses messages by the state of the sandbox. The texts are part of the wire
/// (`docs/reference/wire/conversations.md`).
fn check_accepts_messages(sandbox: &Sandbox) -> Result<(), AppError> {
    match sandbox.status {
        SandboxStatus::Running if sandbox.desired == DesiredState::Running => Ok(()),
        SandboxStatus::Missing => Err(AppError::refused(
            ErrorClass::Gone,
            "Conversation is archived. The sandbox no longer exists.",
        )),
        SandboxStatus::Error => Err(AppError::refused(
            ErrorClass::Unavailable,
            "Sandbox is in an error state and cannot accept messages.",
        )),
        status => Err(AppError::conflict(format!(
            "Sandbox is {status}. Use POST /api/v1/sandboxes/{}/resume to resume it first.",
            sandbox.id
        ))),
    }
}
