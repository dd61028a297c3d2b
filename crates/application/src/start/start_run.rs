//! One run of a start task, step by step, under a lease.
//!
//! Every step is idempotent, and every status is stored before it is published. So a run may be cut off between any
//! two lines: the next worker begins at the first step, finds what is done, and never goes back to an earlier status.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::{
    AgentConversation, AgentConversationReader, AgentEndpoint, AgentError, AgentRuntime,
    LaunchRequest,
};
use domain::clock::Clock;
use domain::conversation::{Conversation, ConversationReportRepository};
use domain::encryption::cipher::Cipher;
use domain::error::{Entity, StoreError, chain};
use domain::git::{CloneSourceResolver, GitProvider};
use domain::id::{SandboxId, StartTaskId};
use domain::sandbox::{Sandbox, SandboxEndpoints, SandboxReader};
use domain::start_task::{
    LeasedStartTask, StartStatus, StartTask, StartTaskQueue, StartTaskRepository, StartTaskUpdate,
};
use tokio::time::Instant;
use url::Url;

use super::launch_request::{AgentSummary, LaunchBuilder, agent_summary};
use super::prepare::{PreparationPlan, PreparedWorkspace, WorkspacePreparation, WorkspacePreparer};
use super::request_checks::{CONVERSATION_ID_IN_USE, wants_auto_title};
use super::run_stop::RunStop;
use super::sandbox_choice::directory_tag;
use super::{StartService, StartUpdates, interrupted, profile_seeding};
use crate::conversations::{new_conversation_row, provisional_title};
use crate::models::ModelAccess;
use crate::runtime::metrics::{MetricsRecorder, StartOutcome};
use crate::sandbox_git::SandboxGit;
use crate::sandboxes::{SandboxReconciler, endpoint};
use crate::secrets::SecretsService;
use crate::settings::SettingsService;
use crate::sync::ConversationSyncer;
use crate::trace::StepSpan;
use crate::{AppError, Policy, Ports};

/// A task fails after this many claims without an end. Each is a crash, a lost lease or an unavailable store.
const MAX_ATTEMPTS: u32 = 50;
/// Longest retries of a full sandbox before the start fails; they occupy a start slot.
const FULL_SANDBOX_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for advice, which must not delay a start.
const ADVICE_TIMEOUT: Duration = Duration::from_secs(6);

/// Runs start tasks.
pub(crate) struct StartRunner {
    tasks: Arc<dyn StartTaskRepository>,
    pub(super) queue: Arc<dyn StartTaskQueue>,
    reports: Arc<dyn ConversationReportRepository>,
    reader: Arc<dyn SandboxReader>,
    agents: Arc<dyn AgentRuntime>,
    agent_reader: Arc<dyn AgentConversationReader>,
    clone_sources: Arc<dyn CloneSourceResolver>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    webhook_url: Url,
    settings: SettingsService,
    preparer: WorkspacePreparer,
    launches: LaunchBuilder,
    models: ModelAccess,
    sandbox_git: SandboxGit,
    reconciler: SandboxReconciler,
    syncer: ConversationSyncer,
    pub(super) updates: StartUpdates,
    pub(super) metrics: Arc<MetricsRecorder>,
}

impl StartRunner {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        starts: &StartService,
        (secrets, models, sandbox_git): (SecretsService, ModelAccess, SandboxGit),
        reconciler: SandboxReconciler,
        syncer: ConversationSyncer,
        metrics: Arc<MetricsRecorder>,
    ) -> Self {
        Self {
            tasks: Arc::clone(&ports.start_tasks),
            queue: Arc::clone(&ports.start_queue),
            reports: Arc::clone(&ports.conversation_reports),
            reader: Arc::clone(&ports.sandbox_reader),
            agents: Arc::clone(&ports.agents),
            agent_reader: Arc::clone(&ports.agent_reader),
            clone_sources: Arc::clone(&ports.clone_sources),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            webhook_url: policy.webhook_url.clone(),
            settings: starts.settings.clone(),
            preparer: WorkspacePreparer::new(ports, policy),
            launches: LaunchBuilder::new(secrets, models.clone(), ports, policy),
            models,
            sandbox_git,
            reconciler,
            syncer,
            updates: starts.updates.clone(),
            metrics,
        }
    }

    /// Publishes the end of a task that was ended elsewhere.
    pub(super) async fn publish_if_ended(&self, id: StartTaskId) {
        self.updates.publish_if_ended(&*self.tasks, id).await;
    }
}

pub(super) struct StartRun {
    runner: Arc<StartRunner>,
    task: StartTask,
    fence: i64,
    entered: Instant,
    span: StepSpan,
    /// The agent server, once the sandbox runs.
    at: Option<AgentEndpoint>,
}

impl StartRun {
    pub(super) fn new(runner: Arc<StartRunner>, claim: LeasedStartTask) -> Self {
        Self {
            runner,
            span: StepSpan::enter(claim.task.status),
            task: claim.task,
            fence: claim.fence,
            entered: Instant::now(),
            at: None,
        }
    }

    /// Runs all steps to READY or ERROR, or leaves the task to the next worker.
    pub(super) async fn run(mut self) {
        let runner = Arc::clone(&self.runner);
        let _running = runner.metrics.track_start();
        let outcome = if self.task.attempts > MAX_ATTEMPTS {
            Err(RunStop::failed(format!(
                "the start was interrupted {MAX_ATTEMPTS} times"
            )))
        } else {
            self.run_steps().await
        };
        match outcome {
            Ok(()) => {
                runner.metrics.count_ended(StartOutcome::Ready);
                tracing::info!(conversation.id = %self.task.conversation_id, timings = ?self.task.timings, "conversation ready");
            }
            Err(RunStop::Abandoned) => {
                runner.metrics.count_ended(StartOutcome::Abandoned);
                tracing::info!("start abandoned; the next worker continues it");
                runner.publish_if_ended(self.task.id).await;
            }
            Err(RunStop::Failed(detail, cause)) => {
                runner.metrics.count_ended(StartOutcome::Failed);
                self.log(&detail, cause.as_ref());
                self.fail(detail).await;
            }
        }
    }

    fn log(&self, detail: &str, cause: Option<&AppError>) {
        let (id, step) = (self.task.conversation_id, self.task.status);
        let error = cause.map(|it| chain(it));
        tracing::warn!(conversation.id = %id, %step, detail, error, "start failed");
    }

    async fn run_steps(&mut self) -> Result<(), RunStop> {
        if let Some((sandbox, info)) = self.find_earlier().await? {
            let (advice, ()) = futures::join!(self.fetch_advice(&sandbox), self.clean_up());
            return self.complete(&sandbox, &info, advice).await;
        }
        // Settings first, so that a start which cannot succeed costs no sandbox.
        let model = self.task.request.llm_model.as_deref();
        let settings = self.runner.settings.load(&self.task.owner).await?;
        let named = self.task.request.agent_profile_id.as_deref();
        let (settings, chosen) = settings.unwrap_or_default().apply_agent_profile(named)?;
        let profile = chosen.launch_profile(&settings, model)?;
        self.add_notes(profile.notes.clone());
        let sources = &*self.runner.clone_sources;
        let mut plan = PreparationPlan::of(sources, &self.task, &profile, &settings).await?;
        self.enter(StartStatus::WaitingForSandbox).await?;
        let (sandbox, endpoints) = self.ensure_sandbox().await?;
        let git = &self.runner.sandbox_git;
        plan.git_configuration = git.configuration(&sandbox, &settings)?;
        let at = endpoint(&*self.runner.cipher, &sandbox, &endpoints.agent_url)?;
        self.at = Some(at.clone());
        let (agents, models) = (&*self.runner.agents, &self.runner.models);
        let seeded = profile_seeding::seed(agents, models, &at, &settings).await?;
        self.add_notes(seeded);
        let prepared = self.prepare(&plan, &at, &endpoints.workspace).await?;
        let mut task = self.task.clone();
        // Also without a named provider: sub-conversations and the plan path depend on it.
        task.request.git_provider = plan.provider().or(task.request.git_provider);
        let (launches, tokens) = (&self.runner.launches, &settings.provider_tokens);
        let request = launches.build(&task, profile, tokens, &sandbox, prepared);
        let (request, notes) = request.await?;
        let mut agent = agent_summary(&request);
        agent.tags.extend(plan.tags());
        agent.tags.extend(directory_tag(&task.request));
        agent.tags.extend(chosen.tags());
        self.add_notes(notes);
        self.store_conversation(&endpoints, agent, task.request.git_provider)
            .await?;
        let (info, advice, ()) = futures::join!(
            self.launch(&at, &request),
            self.fetch_advice(&sandbox.id),
            self.clean_up()
        );
        self.complete(&sandbox.id, &info?, advice).await
    }

    async fn clean_up(&self) {
        if let Some(at) = &self.at
            && self.task.request.selected_repository.is_some()
        {
            self.runner.preparer.clean_up(at, &self.task).await;
        }
    }

    /// Finds the conversation that an earlier run requested. Its agent may be at work, and no later failure may end it.
    async fn find_earlier(&mut self) -> Result<Option<(SandboxId, AgentConversation)>, RunStop> {
        if self.task.status != StartStatus::StartingConversation {
            return Ok(None);
        }
        let (sandbox, endpoints) = self.ensure_sandbox().await?;
        let at = endpoint(&*self.runner.cipher, &sandbox, &endpoints.agent_url)?;
        self.at = Some(at.clone());
        let found =
            interrupted::find_earlier_conversation(&*self.runner.agent_reader, &at, &self.task)
                .await;
        Ok(found.map(|info| (sandbox.id, info)))
    }

    async fn complete(
        &mut self,
        sandbox: &SandboxId,
        info: &AgentConversation,
        advice: Vec<String>,
    ) -> Result<(), RunStop> {
        let notes = info.notes.iter().cloned().chain(advice);
        self.task.notes.extend(notes);
        let now = self.runner.clock.now();
        let seen = info.report(now);
        let (reports, id) = (&self.runner.reports, self.task.conversation_id);
        let _ = reports.apply_report(sandbox, id, &seen, now).await?;
        self.enter(StartStatus::Ready).await?;
        self.runner.syncer.request(sandbox);
        Ok(())
    }

    /// Returns the running sandbox. Meanwhile the task shows the progress.
    async fn ensure_sandbox(&mut self) -> Result<(Sandbox, SandboxEndpoints), RunStop> {
        let (reconciler, id) = (self.runner.reconciler.clone(), self.task.sandbox_id.clone());
        let mut progress = reconciler.progress(&id);
        let mut work = std::pin::pin!(reconciler.ensure_running(&id));
        loop {
            let line = tokio::select! {
                biased;
                done = &mut work => return Ok(done?),
                line = progress.next() => line,
            };
            self.advance(self.task.status, Some(line)).await?;
        }
    }

    /// Prepares repository, setup script, git hooks, skills and agent hooks. Each has a status, even if there is
    /// nothing to do (`docs/reference/wire/start-tasks.md`).
    async fn prepare(
        &mut self,
        plan: &PreparationPlan,
        at: &AgentEndpoint,
        root: &str,
    ) -> Result<PreparedWorkspace, RunStop> {
        let (runner, task) = (Arc::clone(&self.runner), self.task.clone());
        let mut work = WorkspacePreparation::new(&runner.preparer, at, plan, &task, root);
        self.enter_with(StartStatus::PreparingRepository, work.progress_detail())
            .await?;
        work.repository(&task).await?;
        let running = work
            .has_setup()
            .then(|| "Running .openhands/setup.sh".to_owned());
        self.enter_with(StartStatus::RunningSetupScript, running)
            .await?;
        work.setup().await?;
        self.enter(StartStatus::SettingUpGitHooks).await?;
        work.git_hooks().await?;
        self.enter(StartStatus::SettingUpSkills).await?;
        work.skills().await;
        let prepared = work.finish();
        self.add_notes(prepared.notes.clone());
        Ok(prepared)
    }

    /// Adds notes that an earlier run has not added.
    fn add_notes(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.task.notes.contains(&note) {
                self.task.notes.push(note);
            }
        }
    }

    /// Advice for the owner about a running sandbox. Fetched while the conversation is created.
    async fn fetch_advice(&self, sandbox: &SandboxId) -> Vec<String> {
        let runner = &self.runner;
        let advice = runner.reader.list_warnings(sandbox, &runner.webhook_url);
        let advice = tokio::time::timeout(ADVICE_TIMEOUT, advice).await;
        advice.unwrap_or_default()
    }

    /// Sends the launch request. An agent server at its limit of concurrent runs is retried for a while, because a run
    /// will end.
    async fn launch(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AppError> {
        let give_up = Instant::now() + FULL_SANDBOX_TIMEOUT;
        let mut pause = Duration::from_millis(250);
        loop {
            match self.runner.agents.start(at, request).await {
                Err(AgentError::Rejected { status: 429, .. })
                    if Instant::now() + pause < give_up =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                done => return Ok(done?),
            }
        }
    }

    /// Stores and publishes a status, unless an earlier run was further.
    async fn enter(&mut self, status: StartStatus) -> Result<(), RunStop> {
        self.enter_with(status, None).await
    }

    async fn enter_with(
        &mut self,
        status: StartStatus,
        detail: Option<String>,
    ) -> Result<(), RunStop> {
        if self.task.status >= status {
            return Ok(());
        }
        self.advance(status, detail).await
    }

    async fn advance(
        &mut self,
        status: StartStatus,
        detail: Option<String>,
    ) -> Result<(), RunStop> {
        let (step, now) = (self.next_update(status, detail), self.now());
        let queue = &self.runner.queue;
        let stored = queue.advance(self.task.id, self.fence, &step, now);
        let stored = stored.await?;
        self.apply_stored(stored);
        Ok(())
    }

    /// Stores the conversation's row before the agent server gets the request, so that its first reports find the row.
    async fn store_conversation(
        &mut self,
        endpoints: &SandboxEndpoints,
        agent: AgentSummary,
        provider: Option<GitProvider>,
    ) -> Result<(), RunStop> {
        let mut step = self.next_update(StartStatus::StartingConversation, None);
        let url = endpoints.agent_url.as_str().trim_end_matches('/');
        step.agent_server_url = Some(url.to_owned());
        let conversation = self.conversation_row(agent, provider);
        let queue = &self.runner.queue;
        let (id, fence, now) = (self.task.id, self.fence, self.now());
        let stored = queue.begin_conversation(id, fence, &conversation, &step, now);
        let stored = stored.await.map_err(|error| match error {
            StoreError::NotFound {
                entity: Entity::ParentConversation,
            } => RunStop::failed("the parent conversation was deleted while this one was starting"),
            StoreError::NotFound { .. } => RunStop::failed(
                "the sandbox was paused or deleted while the conversation was starting",
            ),
            StoreError::Conflict { .. } => RunStop::failed(CONVERSATION_ID_IN_USE),
            error => error.into(),
        })?;
        self.apply_stored(stored);
        Ok(())
    }

    fn conversation_row(
        &self,
        agent: AgentSummary,
        git_provider: Option<GitProvider>,
    ) -> Conversation {
        let (task, request, now) = (&self.task, &self.task.request, self.now());
        let title = request.title.clone();
        Conversation {
            title: Some(title.unwrap_or_else(|| provisional_title(task.conversation_id))),
            auto_title: wants_auto_title(request),
            selected_repository: request.selected_repository.clone(),
            selected_branch: request.selected_branch.clone(),
            git_provider,
            trigger: request.trigger,
            pr_numbers: request.pr_number.clone(),
            llm_model: agent.llm_model,
            agent_kind: agent.agent_kind,
            parent: request.parent_conversation_id,
            public: request.public,
            tags: agent.tags,
            ..new_conversation_row(task.conversation_id, &task.owner, &task.sandbox_id, now)
        }
    }

    async fn fail(mut self, detail: String) {
        self.forget_conversation().await;
        let step = self.next_update(StartStatus::Error, Some(detail));
        let queue = &self.runner.queue;
        let failed = queue.fail(self.task.id, self.fence, &step, self.now());
        match failed.await {
            Ok(task) => self.apply_stored(task),
            Err(error) => {
                return tracing::warn!(error = %chain(&error), "cannot record the failure of a start; the next worker will");
            }
        }
        if self.task.owns_sandbox
            && let Err(error) = self.runner.reconciler.converge(&self.task.sandbox_id).await
        {
            tracing::warn!(error = %chain(&error), "cannot remove the sandbox of a failed start yet; the reconciler tries again");
        }
    }

    /// Deletes the conversation from the agent server, which may have created it all the same (after a timeout, or in
    /// an earlier run), and whose sandbox may live on.
    async fn forget_conversation(&self) {
        if self.task.status != StartStatus::StartingConversation {
            return;
        }
        let Some(at) = &self.at else { return };
        let (agents, id) = (&self.runner.agents, self.task.conversation_id);
        if let Err(error) = agents.delete_conversation(at, id).await {
            tracing::debug!(error = %chain(&error), "cannot delete the conversation of a failed start from its agent server");
        }
    }

    fn next_update(&mut self, status: StartStatus, detail: Option<String>) -> StartTaskUpdate {
        let took = self.entered.elapsed();
        self.runner.metrics.record_step(self.task.status, took);
        let spent = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let timing = self.task.timings.entry(self.task.status.to_string());
        *timing.or_default() += spent;
        self.entered = Instant::now();
        let notes = self.task.notes.clone();
        let joined =
            || (status == StartStatus::Ready && !notes.is_empty()).then(|| notes.join(" "));
        StartTaskUpdate {
            status,
            detail: detail.or_else(joined),
            agent_server_url: None,
            timings: self.task.timings.clone(),
            notes,
        }
    }

    fn apply_stored(&mut self, stored: StartTask) {
        self.runner.updates.publish(&stored);
        self.span.continue_with(stored.status);
        self.task = stored;
    }

    fn now(&self) -> domain::clock::Timestamp {
        self.runner.clock.now()
    }
}
