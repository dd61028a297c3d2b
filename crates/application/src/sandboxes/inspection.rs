//! Reads files, git state, skills and hooks in a conversation's sandbox, and switches the model of its agent.
//!
//! The agent server answers each request; only the name of a new model is stored. One table decides the responses
//! while the agent server is unreachable: `refusal`.

mod hooks;
mod limiter;

use crate::models::SpendingConversation;
use std::sync::Arc;

use domain::agent::workspace::{ProjectSkill, SandboxWorkspace};
use domain::agent::{AgentEndpoint, AgentError, AgentKind, AgentRuntime, LlmProfile};
use domain::clock::Clock;
use domain::conversation::{
    Conversation, ConversationReport, ConversationReportRepository, ConversationRepository,
};
use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, chain};
use domain::id::{ConversationId, OwnerId};
use domain::sandbox::{DesiredState, SandboxReader, SandboxStatus, is_below};
use domain::user::scope::Scope;
use serde_json::Value;

pub use hooks::{EventHooks, Hook, HookMatcher};

use self::limiter::{InspectionLimiter, InspectionPermit};
use crate::models::ModelAccess;
use crate::sandboxes::client_paths::{map_resolve_error, outside_workspace, to_sandbox_path};
use crate::sandboxes::endpoint;
use crate::settings::SettingsService;
use crate::start::{plan_path, project_of};
use crate::{AppError, Ports};

/// Longest file list: as many as front ends show.
const MAX_LISTED_FILES: usize = 2_000;
const MAX_FILE_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub struct SandboxInspector {
    conversations: Arc<dyn ConversationRepository>,
    reports: Arc<dyn ConversationReportRepository>,
    workspace: Arc<dyn SandboxWorkspace>,
    agents: Arc<dyn AgentRuntime>,
    reader: Arc<dyn SandboxReader>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    settings: SettingsService,
    models: ModelAccess,
    limiter: InspectionLimiter,
}

/// The kind of request; each has its own responses while the agent server is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InspectionKind {
    File,
    Files,
    Git,
    /// Skills or hooks.
    Project,
    Profile,
    Model,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreachableReason {
    NoConversation,
    NoSandbox,
    Paused,
    /// Starting, failed, removed, or without a known address.
    NotRunning,
}

/// A reachable agent server with what a request needs.
struct ReachableAgent {
    at: AgentEndpoint,
    conversation: Conversation,
    root: String,
    project: String,
    _permit: InspectionPermit,
}

impl SandboxInspector {
    pub(crate) fn new(ports: &Ports, settings: SettingsService, models: ModelAccess) -> Self {
        Self {
            conversations: Arc::clone(&ports.conversations),
            reports: Arc::clone(&ports.conversation_reports),
            workspace: Arc::clone(&ports.workspace),
            agents: Arc::clone(&ports.agents),
            reader: Arc::clone(&ports.sandbox_reader),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            settings,
            models,
            limiter: InspectionLimiter::default(),
        }
    }

    /// Reads a text file of at most 1 MiB; without a path, the plan. Returns an empty text if there is no such file,
    /// or if the agent server is unreachable: clients do not tell these apart. A path outside the workspace is not
    /// found.
    pub async fn file(
        &self,
        scope: &Scope,
        id: ConversationId,
        path: Option<&str>,
    ) -> Result<String, AppError> {
        let Some(agent) = self.find_agent(scope, id, InspectionKind::File).await? else {
            return Ok(String::new());
        };
        let plan = || plan_path(&agent.project, agent.conversation.git_provider);
        let path = path.map_or_else(plan, str::to_owned);
        let path = self.path(&agent, &path).await?;
        let read = self.workspace.read(&agent.at, &path, MAX_FILE_BYTES).await;
        Ok(read
            .unwrap_or_else(|error| {
                tracing::debug!(error = %chain(&error), "cannot read a file of a sandbox; returning an empty text");
                None
            })
            .unwrap_or_default())
    }

    /// Lists at most 2,000 files below a directory, relative to it.
    pub async fn files(
        &self,
        scope: &Scope,
        id: ConversationId,
        path: &str,
    ) -> Result<Vec<String>, AppError> {
        let agent = self.require_agent(scope, id, InspectionKind::Files).await?;
        let path = self.path(&agent, path).await?;
        let files = self
            .workspace
            .list(&agent.at, &path, MAX_LISTED_FILES)
            .await;
        files.map_err(upstream_error)
    }

    /// Lists changed files of the repository at `path`, as the agent server reports them.
    pub async fn git_changes(
        &self,
        scope: &Scope,
        id: ConversationId,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AppError> {
        let agent = self.require_agent(scope, id, InspectionKind::Git).await?;
        let path = self.path(&agent, path).await?;
        let changes = self.workspace.changes(&agent.at, &path, reference).await;
        changes.map_err(upstream_error)
    }

    /// Returns the changed file at `path` before and after, as the agent server reports it.
    pub async fn git_diff(
        &self,
        scope: &Scope,
        id: ConversationId,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AppError> {
        let agent = self.require_agent(scope, id, InspectionKind::Git).await?;
        let path = self.path(&agent, path).await?;
        let diff = self.workspace.diff(&agent.at, &path, reference).await;
        diff.map_err(upstream_error)
    }

    /// Lists skills of the project; none if they cannot be read.
    pub async fn skills(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Vec<ProjectSkill>, AppError> {
        let Some(agent) = self.find_agent(scope, id, InspectionKind::Project).await? else {
            return Ok(Vec::new());
        };
        let skills = self.workspace.skills(&agent.at, &agent.project).await;
        Ok(skills.unwrap_or_else(|error| {
            tracing::debug!(error = %chain(&error), "cannot read the skills of a project; returning none");
            Vec::new()
        }))
    }

    /// Lists agent hooks of the project by event, without empty events.
    pub async fn hooks(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Vec<EventHooks>, AppError> {
        let Some(agent) = self.find_agent(scope, id, InspectionKind::Project).await? else {
            return Ok(Vec::new());
        };
        let hooks = self.workspace.hooks(&agent.at, &agent.project).await;
        let hooks = hooks.map_err(upstream_error)?;
        Ok(hooks.as_ref().map(hooks::read).unwrap_or_default())
    }

    /// Switches the agent to the model of one of the user's profiles.
    pub async fn switch_profile(
        &self,
        scope: &Scope,
        owner: &OwnerId,
        id: ConversationId,
        name: &str,
    ) -> Result<(), AppError> {
        let profile = self.settings.llm_profile(owner, name).await?;
        let kind = InspectionKind::Profile;
        let agent = self.require_agent(scope, id, kind).await?;
        if agent.conversation.agent_kind == AgentKind::Acp {
            return Err(AppError::invalid(
                "The agent of this conversation is a program with models of its own. Use switch_acp_model.",
            ));
        }
        let budget = self.settings.conversation_budget(owner).await?;
        let spends = Some(SpendingConversation { id, budget });
        let (llm, note) = self
            .models
            .for_sandbox(&agent.at.sandbox, spends, profile.llm)
            .await?;
        if let Some(note) = note {
            tracing::info!(conversation.id = %id, note, "a switched model calls its endpoint from the sandbox");
        }
        let profile = LlmProfile {
            name: profile.name,
            llm,
        };
        let switched = self.agents.switch_llm(&agent.at, id, &profile).await;
        switched.map_err(upstream_error)?;
        self.record_model(&agent, profile.llm.model).await
    }

    pub async fn switch_acp_model(
        &self,
        scope: &Scope,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AppError> {
        let agent = self.require_agent(scope, id, InspectionKind::Model).await?;
        let switched = self.agents.switch_acp_model(&agent.at, id, model).await;
        switched.map_err(acp_error)?;
        self.record_model(&agent, model.to_owned()).await
    }

    /// Records the new model. The agent server reports it too, which covers a crash before this line.
    async fn record_model(&self, agent: &ReachableAgent, model: String) -> Result<(), AppError> {
        let seen = ConversationReport {
            llm_model: Some(model),
            ..ConversationReport::default()
        };
        let (id, now) = (agent.conversation.id, self.clock.now());
        let (reports, sandbox) = (&self.reports, &agent.at.sandbox);
        let _ = reports.apply_report(sandbox, id, &seen, now).await?;
        Ok(())
    }

    /// Resolves a client's path. Not found outside of the workspace, wherever links and `..` lead.
    async fn path(&self, agent: &ReachableAgent, asked: &str) -> Result<String, AppError> {
        let path = resolve_client_path(asked, &agent.root, &agent.project);
        let resolved = self.reader.resolve(&agent.at.sandbox, &path);
        let resolved = resolved.await.map_err(map_resolve_error)?;
        if is_below(&resolved, &agent.root) {
            Ok(resolved)
        } else {
            Err(outside_workspace())
        }
    }

    /// The agent server, or the error while it is unreachable.
    async fn require_agent(
        &self,
        scope: &Scope,
        id: ConversationId,
        kind: InspectionKind,
    ) -> Result<ReachableAgent, AppError> {
        let agent = self.find_agent(scope, id, kind).await?;
        // Requests with an empty response do not get here without an agent server.
        agent.ok_or_else(|| not_reachable(id))
    }

    /// `None`: the agent server is unreachable and the response is empty.
    async fn find_agent(
        &self,
        scope: &Scope,
        id: ConversationId,
        kind: InspectionKind,
    ) -> Result<Option<ReachableAgent>, AppError> {
        match self.locate(scope, id).await? {
            Ok(agent) => Ok(Some(agent)),
            Err(unreachable_reason) => refusal(kind, unreachable_reason, id).map_or(Ok(None), Err),
        }
    }

    async fn locate(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<Result<ReachableAgent, UnreachableReason>, AppError> {
        let Some(view) = self.conversations.find(scope, id).await? else {
            return Ok(Err(UnreachableReason::NoConversation));
        };
        let Some(sandbox) = view.sandbox else {
            return Ok(Err(UnreachableReason::NoSandbox));
        };
        if let Some(unreachable_reason) = unreachable_reason(sandbox.desired, sandbox.status) {
            return Ok(Err(unreachable_reason));
        }
        let (Some(url), Some(root)) = (&sandbox.agent_url, &sandbox.workspace) else {
            return Ok(Err(UnreachableReason::NotRunning));
        };
        Ok(Ok(ReachableAgent {
            at: endpoint(&*self.cipher, &sandbox, url)?,
            root: root.trim_end_matches('/').to_owned(),
            project: project_of(&view.conversation, root),
            conversation: view.conversation,
            _permit: self.limiter.acquire(&sandbox.owner, &sandbox.id).await?,
        }))
    }
}

/// Maps a client's path: paths below the client's workspace are below the sandbox's workspace, and relative ones are
/// below the project.
fn resolve_client_path(asked: &str, root: &str, project: &str) -> String {
    if asked.starts_with('/') {
        return to_sandbox_path(asked, root);
    }
    let relative = asked.trim_start_matches("./");
    if relative.is_empty() || relative == "." {
        return project.to_owned();
    }
    format!("{project}/{relative}")
}

fn unreachable_reason(desired: DesiredState, status: SandboxStatus) -> Option<UnreachableReason> {
    match (desired, status) {
        (DesiredState::Running, SandboxStatus::Running) => None,
        (DesiredState::Running | DesiredState::Paused, SandboxStatus::Paused)
        | (DesiredState::Paused, SandboxStatus::Running | SandboxStatus::Starting) => {
            Some(UnreachableReason::Paused)
        }
        _ => Some(UnreachableReason::NotRunning),
    }
}

/// The responses while the agent server is unreachable (`docs/reference/wire/conversations.md`). `None` is an empty
/// response.
fn refusal(
    kind: InspectionKind,
    unreachable_reason: UnreachableReason,
    id: ConversationId,
) -> Option<AppError> {
    use UnreachableReason::{NoConversation, NoSandbox, NotRunning, Paused};
    let of_project = |what: &str| {
        let what = what.replace("{}", &id.dashed());
        Some(AppError::not_found(what))
    };
    let paused = |before: &str| {
        let detail = format!("Sandbox is paused; resume it before {before}.");
        Some(AppError::conflict(detail))
    };
    match (kind, unreachable_reason) {
        (InspectionKind::File, _) | (InspectionKind::Project, Paused) => None,
        (InspectionKind::Project, NoConversation) => of_project("Conversation {} not found"),
        (InspectionKind::Project, NoSandbox) => of_project("Sandbox not found for conversation {}"),
        (InspectionKind::Project, NotRunning) => {
            of_project("Sandbox not ready for conversation {}")
        }
        (InspectionKind::Files, Paused) => paused("listing files"),
        (InspectionKind::Git, Paused) => paused("reading git state"),
        (InspectionKind::Profile, Paused) => paused("switching profiles"),
        (InspectionKind::Model, Paused) => paused("switching models"),
        (
            InspectionKind::Files
            | InspectionKind::Git
            | InspectionKind::Profile
            | InspectionKind::Model,
            _,
        ) => Some(not_reachable(id)),
    }
}

fn not_reachable(id: ConversationId) -> AppError {
    AppError::not_found(format!("Conversation {} is not reachable", id.dashed()))
}

/// Every refusal by an agent server is an upstream error: a path or conversation that it does not know may still exist
/// here.
fn upstream_error(error: AgentError) -> AppError {
    match error {
        AgentError::NotFound => agent_error(ErrorClass::Upstream, 404),
        error => error.into(),
    }
}

/// An ACP agent that cannot switch, or does not answer, has errors of its own.
fn acp_error(error: AgentError) -> AppError {
    match error {
        AgentError::Rejected { status: 400, .. } => agent_error(ErrorClass::Invalid, 400),
        AgentError::Rejected { status: 504, .. } => agent_error(ErrorClass::TimedOut, 504),
        error => upstream_error(error),
    }
}

fn agent_error(class: ErrorClass, status: u16) -> AppError {
    AppError::refused(class, format!("Agent server error: {status}"))
}

#[cfg(test)]
mod tests;
