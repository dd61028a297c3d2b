//! Preparation of a sandbox for a conversation: its repository, setup script, git hooks, skills and agent hooks.
//!
//! All steps are commands inside the sandbox, through its agent server ([`scripts`]). Each step may be cut off
//! anywhere: the next worker repeats it and finds what is done. A failed clone ends the start with a cause; failures
//! of setup script, hooks or skills become notes.

mod output;
mod plan;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use domain::agent::workspace::{SandboxWorkspace, ShellCommand, ShellOutcome};
use domain::agent::{AgentEndpoint, AgentError, AgentLifecycle};
use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, chain};
use domain::id::SandboxId;
use domain::sandbox::{Sandbox, SandboxRepository};
use domain::start_task::StartTask;
use domain::user::scope::Scope;
use futures::future::OptionFuture;
use serde_json::Value;

pub(super) use plan::PreparationPlan;

use self::output::{CheckoutState, GitAvailability, Redactor, WorkspaceFacts};
use self::plan::PlannedRepository;
use super::working_dir::working_dir;
use crate::sandboxes::conversation_credential;
use crate::{AppError, Policy, Ports};

/// Timeout of commands that only inspect, or write a few files.
const QUICK_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Retries of a command while the agent server is unreachable.
const MAX_RETRIES: u32 = 3;
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for the agent server before each retry.
const RESTART_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct PreparedWorkspace {
    /// Absolute working directory of the agent in the sandbox: the repository, or the workspace without one.
    pub(super) working_dir: String,
    pub(super) hooks: Option<Value>,
    pub(super) notes: Vec<String>,
}

/// Prepares workspaces through the agent servers of their sandboxes.
pub(super) struct WorkspacePreparer {
    workspace: Arc<dyn SandboxWorkspace>,
    agents: Arc<dyn AgentLifecycle>,
    sandboxes: Arc<dyn SandboxRepository>,
    cipher: Arc<dyn Cipher>,
    clone_timeout: Duration,
    setup_timeout: Duration,
}

impl WorkspacePreparer {
    pub(super) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            workspace: Arc::clone(&ports.workspace),
            agents: Arc::clone(&ports.agent_lifecycle),
            sandboxes: Arc::clone(&ports.sandboxes),
            cipher: Arc::clone(&ports.cipher),
            clone_timeout: policy.clone_timeout,
            setup_timeout: policy.setup_timeout,
        }
    }

    /// Removes what only the preparation needed from the sandbox, such as the output of commands.
    pub(super) async fn clean_up(&self, at: &AgentEndpoint, task: &StartTask) {
        let command = ShellCommand {
            script: scripts::remove_leftovers(&task.id.to_string()),
            directory: None,
            timeout: QUICK_COMMAND_TIMEOUT,
        };
        if let Err(error) = self.workspace.run(at, &command).await {
            tracing::debug!(error = %chain(&error), "cannot clean up after the preparation");
        }
    }
}

/// A running preparation: [`WorkspacePreparation::repository`] first, then the other steps in their order.
pub(super) struct WorkspacePreparation<'a> {
    with: &'a WorkspacePreparer,
    at: &'a AgentEndpoint,
    plan: &'a PreparationPlan,
    /// Id of the task, which names the files of this start in all its attempts.
    task: String,
    sandbox: SandboxId,
    root: String,
    workspace: String,
    private: String,
    found: WorkspaceFacts,
    prepared: PreparedWorkspace,
}

impl<'a> WorkspacePreparation<'a> {
    /// Prepares in the sandbox's workspace `root`, or in the conversation's own directory in it.
    pub(super) fn new(
        with: &'a WorkspacePreparer,
        at: &'a AgentEndpoint,
        plan: &'a PreparationPlan,
        task: &StartTask,
        root: &str,
    ) -> Self {
        let directory = task.request.directory.as_deref();
        let repository = plan.repository.as_ref().map(|it| it.directory.as_str());
        let (workspace, working_dir) = working_dir(root, directory, repository);
        Self {
            with,
            at,
            plan,
            task: task.id.to_string(),
            sandbox: task.sandbox_id.clone(),
            root: root.trim_end_matches('/').to_owned(),
            workspace,
            private: String::new(),
            found: WorkspaceFacts::default(),
            prepared: PreparedWorkspace {
                working_dir,
                ..PreparedWorkspace::default()
            },
        }
    }

    /// Detail of the task while the repository is cloned.
    pub(super) fn progress_detail(&self) -> Option<String> {
        let repository = self.plan.repository.as_ref()?;
        Some(format!(
            "Cloning {} from {}",
            repository.name,
            repository.host()
        ))
    }

    /// Creates the workspace and clones the repository.
    pub(super) async fn repository(&mut self, task: &StartTask) -> Result<(), AppError> {
        let wanted = self.plan.repository.as_ref();
        let look = scripts::inspect(&self.workspace, &self.task, self.plan);
        let outcome = self.run(look, QUICK_COMMAND_TIMEOUT).await?;
        self.found = WorkspaceFacts::read(&outcome.output);
        if !outcome.is_success() {
            return Err(self
                .command_failed("The workspace could not be created", &outcome)
                .await);
        }
        self.private = self.found.private.clone().unwrap_or_default();
        if let Some(text) = &self.plan.git_configuration
            && !self.private.is_empty()
        {
            let path = scripts::git_configuration(&self.private);
            let write = || self.with.workspace.write(self.at, &path, text);
            self.retry_unreachable(write).await?;
        }
        let Some(repository) = wanted else {
            if self.found.git != GitAvailability::Works {
                self.note(
                    "The workspace is not a git repository: git is missing in the sandbox, or failed.",
                );
            }
            return Ok(());
        };
        if self.found.git == GitAvailability::Missing {
            let cause = format!(
                "Repository {} was not cloned: there is no git in the sandbox's image.",
                repository.name
            );
            return Err(AppError::refused(ErrorClass::Upstream, cause));
        }
        match self.found.state {
            CheckoutState::Ours => Ok(()),
            CheckoutState::Same => {
                // A sub-conversation works in its parent's repository: no note.
                if task.request.parent_conversation_id.is_none() {
                    self.note(&existing_repository_note(
                        repository,
                        self.found.branch.as_deref(),
                    ));
                }
                Ok(())
            }
            CheckoutState::Other => Err(AppError::refused(
                ErrorClass::Conflict,
                format!(
                    "Repository {} was not cloned: the sandbox's workspace already has a different {}. Use another sandbox.",
                    repository.name, repository.directory
                ),
            )),
            CheckoutState::Absent => self.clone_repository(repository).await,
        }
    }

    async fn clone_repository(&mut self, repository: &PlannedRepository) -> Result<(), AppError> {
        let (workspace, private, task) = (&self.workspace, &self.private, &self.task);
        let (identity, timeout) = (&self.plan.identity, self.with.clone_timeout);
        let script = scripts::clone(workspace, private, task, identity, repository);
        let cloned = self.run(script, timeout).await;
        if !matches!(&cloned, Ok(outcome) if outcome.is_success()) {
            let clean_up = scripts::remove_partial_clone(workspace, task);
            if let Err(error) = self.run(clean_up, QUICK_COMMAND_TIMEOUT).await {
                tracing::debug!(error = %chain(&error), "cannot clean up after a failed clone");
            }
        }
        let outcome = cloned?;
        if outcome.is_success() {
            self.found = WorkspaceFacts::read(&outcome.output);
            return Ok(());
        }
        let redactor = self.redactor().await;
        let cause = output::clone_failure(repository, &outcome, timeout, &redactor);
        Err(AppError::refused(ErrorClass::Upstream, cause))
    }

    pub(super) fn has_setup(&self) -> bool {
        self.found.has("setup.sh")
    }

    pub(super) async fn setup(&mut self) -> Result<(), AppError> {
        if !self.found.has("setup.sh") {
            return Ok(());
        }
        let timeout = self.with.setup_timeout;
        let script = scripts::setup(&self.private, &self.prepared.working_dir);
        let mut outcome = self.run(script, timeout).await?;
        if outcome.is_success() {
            return Ok(());
        }
        let interrupted = outcome.output.strip_prefix(scripts::INTERRUPTED);
        let how = if let Some(rest) = interrupted.map(str::to_owned) {
            outcome.output = rest;
            "was interrupted, and is not run again".to_owned()
        } else if let Some(code) = outcome.exit_code {
            format!("failed with exit code {code}")
        } else {
            let show = scripts::show_setup_output(&self.private);
            let shown = self.run(show, QUICK_COMMAND_TIMEOUT).await;
            outcome.output = shown.map(|shown| shown.output).unwrap_or_default();
            format!("was ended after {} s", timeout.as_secs())
        };
        let quoted = output::quote(&outcome.output, &self.redactor().await);
        let quoted = quoted.map_or_else(String::new, |quoted| format!(" Its last words: {quoted}"));
        self.note(&format!(
            "The setup script .openhands/setup.sh {how}.{quoted}"
        ));
        Ok(())
    }

    /// Installs the project's pre-commit script as a git hook, if it has one.
    pub(super) async fn git_hooks(&mut self) -> Result<(), AppError> {
        if !self.found.has("pre-commit.sh") {
            return Ok(());
        }
        if !self.found.has("git") {
            self.note("The git hook .openhands/pre-commit.sh was not installed: there is no git repository.");
            return Ok(());
        }
        let script = scripts::pre_commit(&self.prepared.working_dir);
        let outcome = self.run(script, QUICK_COMMAND_TIMEOUT).await?;
        if !outcome.is_success() {
            let quoted = output::quote(&outcome.output, &self.redactor().await);
            self.note(&format!(
                "The git hook .openhands/pre-commit.sh was not installed: {}",
                quoted.as_deref().unwrap_or("no reason was given.")
            ));
        }
        Ok(())
    }

    /// Reads the project's agent hooks for the launch, and checks that its skills can be read. (The agent server loads
    /// them itself.)
    pub(super) async fn skills(&mut self) {
        let (workspace, project) = (&self.with.workspace, &self.prepared.working_dir);
        let hooks = self.found.has("hooks.json");
        let hooks = OptionFuture::from(hooks.then(|| workspace.hooks(self.at, project)));
        let skills = self.found.has("skills");
        let skills = OptionFuture::from(skills.then(|| workspace.skills(self.at, project)));
        let (hooks, skills) = futures::join!(hooks, skills);
        match hooks {
            None => {}
            Some(Ok(Some(hooks))) => self.prepared.hooks = Some(hooks),
            Some(Ok(None)) => {
                self.note("The agent hooks .openhands/hooks.json are not used: they are empty or cannot be read.");
            }
            Some(Err(error)) => {
                self.note(&format!(
                    "The agent hooks .openhands/hooks.json are not used: {error}."
                ));
            }
        }
        match skills {
            Some(Ok(skills)) if skills.is_empty() => {
                self.note(
                    "No skill of the project could be loaded: check the front matter of the files in .agents/skills, \
                     .openhands/skills or .openhands/microagents.",
                );
            }
            Some(Err(error)) => {
                self.note(&format!("The project's skills could not be read: {error}."));
            }
            None | Some(Ok(_)) => {}
        }
    }

    pub(super) fn finish(self) -> PreparedWorkspace {
        self.prepared
    }

    async fn run(&self, script: String, timeout: Duration) -> Result<ShellOutcome, AppError> {
        let command = ShellCommand {
            script: format!("{}{script}", scripts::UNSET_SANDBOX_KEYS),
            directory: None,
            timeout,
        };
        let run = || self.with.workspace.run(self.at, &command);
        Ok(self.retry_unreachable(run).await?)
    }

    /// Retries a command while the agent server is unreachable: a setup script may end it, and it is restarted. All
    /// commands can be repeated, see [`scripts`].
    async fn retry_unreachable<T, F: Future<Output = Result<T, AgentError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, AgentError> {
        for _ in 0..MAX_RETRIES {
            match ask().await {
                Err(AgentError::Unreachable(cause)) => {
                    tracing::debug!(%cause, "agent server unreachable during the preparation; trying again");
                    self.wait_until_alive().await;
                }
                finish => return finish,
            }
        }
        ask().await
    }

    /// Waits until the agent server answers, at most [`RESTART_TIMEOUT`].
    async fn wait_until_alive(&self) {
        let (agents, at) = (&self.with.agents, self.at);
        let answers = async {
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
            while !agents.is_alive(&at.sandbox, &at.url).await {
                tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(RESTART_TIMEOUT, answers).await;
    }

    fn note(&mut self, note: &str) {
        self.prepared.notes.push(note.to_owned());
    }

    /// The secrets and directories that no quoted output may show. The sandbox's own keys are included, if they open.
    async fn redactor(&self) -> Redactor {
        let mut secrets = self.plan.secrets.clone();
        secrets.push(self.at.key.clone());
        let found = self.with.sandboxes.find(&Scope::System, &self.sandbox);
        if let Ok(Some(sandbox)) = found.await {
            let context = Sandbox::key_context(&sandbox.id);
            let opened = self.with.cipher.open(&context, &sandbox.secret_key);
            secrets.extend(opened.ok());
            secrets.extend(conversation_credential(&*self.with.cipher, &sandbox).ok());
        }
        Redactor::new(secrets, &[&self.workspace, &self.root, &self.private])
    }

    async fn command_failed(&self, what: &str, outcome: &ShellOutcome) -> AppError {
        let quoted = output::quote(&outcome.output, &self.redactor().await);
        let why = match (&quoted, outcome.exit_code) {
            (Some(quoted), _) => quoted.clone(),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => format!("no end within {} s", QUICK_COMMAND_TIMEOUT.as_secs()),
        };
        AppError::refused(ErrorClass::Upstream, format!("{what}: {why}"))
    }
}

fn existing_repository_note(repository: &PlannedRepository, branch: Option<&str>) -> String {
    let on = branch.map_or_else(String::new, |branch| format!(", on branch {branch}"));
    format!(
        "Repository {} was in the sandbox already and is used as it is{on}.",
        repository.name
    )
}
