//! Conversations: reading, changes, deletion and messages.

pub mod event_streams;
pub mod events;
pub mod export;
pub mod pending;
pub(crate) mod stream_registry;
pub mod sync;
pub mod webhooks;

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::agent::{AgentError, AgentRuntime, MessageDelivery};
use domain::clock::{Clock, Timestamp};
use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationReport,
    ConversationReportRepository, ConversationRepository, ConversationView, ExecutionStatus,
    MessageInput, Metrics,
};
use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, StoreError};
use domain::id::{ConversationId, HostId, SandboxId, UserId};
use domain::page::{Page, PageRequest};
use domain::patch::Patch;
use domain::sandbox::{DesiredState, Sandbox, SandboxRepository, SandboxStatus};
use domain::user::scope::Scope;

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

    /// A page, newest first.
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
            let must_go =
                |row: &Sandbox| row.desired == DesiredState::Deleted && row.host == this.host;
            if row.ok().flatten().is_some_and(|row| must_go(&row)) {
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
        let at = endpoint(&*self.cipher, &sandbox, url)?;
        // Taken before the call: the run's own reports are later and take precedence.
        let now = self.clock.now();
        let sent = self.agents.send(&at, id, message).await;
        let sent = sent.map_err(map_unknown_conversation)?;
        if sent == MessageDelivery::Delivered && message.run {
            mark_running(&*self.reports, &sandbox.id, id, now).await?;
        }
        let note = (sent == MessageDelivery::RunRefused)
            .then(|| "The message is saved, but the sandbox already runs as many conversations as it may.".to_owned());
        Ok(SentMessage {
            sandbox_status: sandbox.status,
            note,
        })
    }
}

/// A row that shows nothing yet.
pub(crate) fn new_conversation_row(
    id: ConversationId,
    owner: &UserId,
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
        agent_kind: "openhands".to_owned(),
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
/// failure (the reference answers 502). The start may not have reached it yet; or an older release skips what a newer
/// one wrote (seen: 1.34.0 in a sandbox that 1.58.0 had run), and leaves it in place.
fn map_unknown_conversation(error: AgentError) -> AppError {
    match error {
        AgentError::NotFound => AppError::conflict(
            "The agent server in this sandbox does not know the conversation. If its start still runs, try again. If a newer agent \
             server wrote it, configure that release again.",
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

/// Checks repository and branch of a change (`docs/reference/wire/conversations.md`).
pub fn check_change(change: &ConversationChange) -> Result<(), String> {
    if let Patch::Set(repository) = &change.selected_repository {
        check_repository(repository)?;
    }
    if let Patch::Set(branch) = &change.selected_branch {
        check_branch(branch)?;
    }
    let names_more = matches!(change.selected_branch, Patch::Set(_))
        || matches!(change.git_provider, Patch::Set(_));
    if change.selected_repository == Patch::Clear && names_more {
        return Err(
            "selected_repository cannot be removed while selected_branch or git_provider is set"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks for `owner/repo`, with optional groups in between and no tricks for shells or paths. Projects and
/// repositories of Azure DevOps may have blanks in their names. A trailing `.git` is not part of the name.
pub fn check_repository(repository: &str) -> Result<(), String> {
    let name = repository.strip_suffix(".git").unwrap_or(repository);
    let parts: Vec<_> = name.split('/').collect();
    let is_deep = parts.len() > 2;
    let part = |p: &str| {
        !p.is_empty()
            && p != "."
            && p != ".."
            // The last part becomes a directory of the workspace.
            && !p.eq_ignore_ascii_case(".git")
            && p.trim() == p
            && p.chars()
                .all(|c| c.is_alphanumeric() || "-_.~".contains(c) || (c == ' ' && is_deep))
    };
    let fits = repository.len() <= 512 && parts.len() >= 2;
    if fits && parts.iter().all(|p| part(p)) {
        Ok(())
    } else {
        Err("selected_repository must look like owner/repo".to_owned())
    }
}

/// Checks a branch name, roughly as `git check-ref-format` does.
pub fn check_branch(branch: &str) -> Result<(), String> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\;&|$`\"'<>".contains(c);
    let fine = !branch.is_empty()
        && branch.len() <= 255
        && !branch.contains(bad)
        && !branch.contains("..")
        && !branch.contains("//")
        && !branch.contains("@{")
        && !branch.starts_with(['-', '/', '.'])
        && !branch.ends_with(['/', '.'])
        && branch.strip_suffix(".lock").is_none();
    if fine {
        Ok(())
    } else {
        Err("selected_branch is not a valid branch name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_branches() {
        for good in [
            "a/b",
            "group/sub/repo",
            "OpenHands/agent-sdk.rs",
            "org/My Project/my repo",
            "org/.github",
            "org/repo.git",
        ] {
            assert!(check_repository(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "/a",
            "a/",
            "a/..",
            "a/b;rm",
            "a/b\n",
            "a b/c",
            "$(x)/y",
            "a//b",
            "a/.git",
            "a/b/ c",
            "a/.git.git",
            "a/.GIT.git",
            "a/.git/c",
            "a/..git",
            "a/...git",
        ] {
            assert!(check_repository(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "feature/x-1", "v1.2"] {
            assert!(check_branch(good).is_ok(), "{good}");
        }
        for bad in [
            "", "-x", "a..b", "a b", "x.lock", "a;b", "a\nb", "x/", "a@{b",
        ] {
            assert!(check_branch(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_repository_does_not_go_while_its_branch_comes() {
        let change = ConversationChange {
            selected_repository: Patch::Clear,
            selected_branch: Patch::Set("main".to_owned()),
            ..ConversationChange::default()
        };
        assert!(check_change(&change).is_err());
    }
}
