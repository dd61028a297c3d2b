//! Preparing a sandbox for a conversation: its repository, setup script, git hooks, skills and agent hooks.
//!
//! All of it happens inside the sandbox, by commands through its agent server ([`scripts`]). Each step may be cut off
//! anywhere: the next worker does it again and finds what is done. A clone that fails ends the start with a cause; a setup
//! script, hooks or skills that fail are noted.

mod plan;
mod report;
mod scripts;

use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentError};
use domain::error::{ErrorClass, chain};
use domain::id::SandboxId;
use domain::sandbox::Sandbox;
use domain::scope::Scope;
use domain::start_task::StartTask;
use domain::workspace::{ShellCommand, ShellOutcome};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

pub(super) use plan::{Plan, directory_of_repository};

use self::plan::Repository;
use self::report::{Found, Git, Hidden, State};
use super::place::working_dir;
use crate::ports::Ports;
use crate::secrets::{AccessTokens, TokenUse};
use crate::{AppError, Policy};

/// For commands that only look, or write a few files.
const QUICK: Duration = Duration::from_secs(30);
/// How long a clone's access token is good for, at the least: it is asked for once, at the beginning.
const ACCESS: Duration = Duration::from_secs(10 * 60);

/// How often a command is asked again of an agent server that was away.
const REPEATS: u32 = 3;
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it may be away each time.
const AWAY: Duration = Duration::from_secs(20);

/// What the launch takes from the preparation.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Absolute directory inside the sandbox in which the agent works: the repository, or the workspace without one.
    pub(super) working_dir: String,
    /// The project's agent hooks, for the launch.
    pub(super) hooks: Option<Value>,
    /// What did not go as asked, for the person who asked.
    pub(super) notes: Vec<String>,
}

/// A preparation on its way: [`Preparation::repository`] first, then the others in their order.
pub(super) struct Preparation<'a> {
    ports: &'a Ports,
    policy: &'a Policy,
    at: &'a AgentEndpoint,
    plan: &'a Plan,
    /// Id of the task: it names what belongs to this start, and to every attempt of it.
    task: String,
    /// Where it runs.
    sandbox: SandboxId,
    /// The sandbox's workspace.
    root: String,
    /// Directory for repositories.
    workspace: String,
    /// Ours in the sandbox.
    private: String,
    found: Found,
    prepared: Prepared,
}

impl<'a> Preparation<'a> {
    /// In the sandbox's workspace `root`, or in the directory in it that the conversation was given.
    pub(super) fn new(
        ports: &'a Ports,
        policy: &'a Policy,
        at: &'a AgentEndpoint,
        plan: &'a Plan,
        task: &StartTask,
        root: &str,
    ) -> Self {
        let directory = task.request.directory.as_deref();
        let repository = plan.repository.as_ref().map(|it| it.directory.as_str());
        let (workspace, working_dir) = working_dir(root, directory, repository);
        Self {
            ports,
            policy,
            at,
            plan,
            task: task.id.to_string(),
            sandbox: task.sandbox_id.clone(),
            root: root.trim_end_matches('/').to_owned(),
            workspace,
            private: String::new(),
            found: Found::default(),
            prepared: Prepared {
                working_dir,
                ..Prepared::default()
            },
        }
    }

    /// What is being cloned, for the task's detail.
    pub(super) fn shown(&self) -> Option<String> {
        let repository = self.plan.repository.as_ref()?;
        Some(format!(
            "Cloning {} from {}",
            repository.name,
            repository.host()
        ))
    }

    /// Makes the workspace and brings the repository there.
    pub(super) async fn repository(&mut self, task: &StartTask) -> Result<(), AppError> {
        let wanted = self.plan.repository.as_ref();
        let look = scripts::look(&self.workspace, &self.task, &self.plan.identity, wanted);
        let outcome = self.run(look, QUICK).await?;
        self.found = Found::read(&outcome.output);
        if !outcome.is_success() {
            return Err(self
                .failed("The workspace could not be made", &outcome)
                .await);
        }
        self.private = self.found.private.clone().unwrap_or_default();
        let Some(repository) = wanted else {
            if self.found.git != Git::Works {
                self.note(
                    "The workspace is no git repository: git is missing in the sandbox, or failed.",
                );
            }
            return Ok(());
        };
        if self.found.git == Git::Missing {
            let cause = format!(
                "Repository {} was not cloned: there is no git in the sandbox's image.",
                repository.name
            );
            return Err(AppError::refused(ErrorClass::Upstream, cause));
        }
        match self.found.state {
            State::Ours => Ok(()),
            State::Same => {
                // A part of a conversation works where its parent does: nothing to tell.
                if task.request.parent_conversation_id.is_none() {
                    self.note(&already_there(repository, self.found.branch.as_deref()));
                }
                Ok(())
            }
            State::Other => Err(AppError::refused(
                ErrorClass::Conflict,
                format!(
                    "Repository {} was not cloned: the sandbox's workspace already has a different {}. Use another sandbox.",
                    repository.name, repository.directory
                ),
            )),
            State::Absent => self.clone_it(task, repository).await,
        }
    }

    async fn clone_it(
        &mut self,
        task: &StartTask,
        repository: &Repository,
    ) -> Result<(), AppError> {
        // Named by the attempt: an earlier one that is still at work removes its own at its end.
        let helper = repository
            .token_use
            .as_ref()
            .map(|usage| (format!("credentials-{}", task.attempts), usage));
        if let Some((name, usage)) = &helper {
            let text = self.credential_helper(task, repository, usage)?;
            let path = format!("{}/{name}", self.private);
            let write = || self.ports.workspace.write(self.at, &path, &text);
            self.insisting(write).await?;
        }
        let helper = helper.as_ref().map(|(name, _)| name.as_str());
        let (workspace, private, deadline) =
            (&self.workspace, &self.private, self.policy.clone_deadline);
        let identity = &self.plan.identity;
        let script = scripts::clone(workspace, private, &self.task, identity, repository, helper);
        let cloned = self.run(script, deadline).await;
        if !matches!(&cloned, Ok(outcome) if outcome.is_success()) {
            let clean_up = scripts::clean_up(workspace, private, &self.task, helper);
            if let Err(error) = self.run(clean_up, QUICK).await {
                tracing::debug!(error = %chain(&error), "could not clean up after a clone that failed");
            }
        }
        let outcome = cloned?;
        if outcome.is_success() {
            self.found = Found::read(&outcome.output);
            return Ok(());
        }
        let hidden = self.hidden().await;
        let cause = report::clone_failure(repository, &outcome, deadline, &hidden);
        Err(AppError::refused(ErrorClass::Upstream, cause))
    }

    /// The provider's token never enters the sandbox as a file: git gets it from this script, which asks us for it.
    fn credential_helper(
        &self,
        task: &StartTask,
        repository: &Repository,
        usage: &TokenUse,
    ) -> Result<SecretString, AppError> {
        let tokens = AccessTokens::new(self.ports.cipher.clone(), self.ports.clock.clone());
        let ttl = ACCESS.max(self.policy.clone_deadline);
        let access = tokens.mint(
            &task.owner,
            &task.sandbox_id,
            repository.provider,
            usage,
            ttl,
        )?;
        let url = secrets_url(&self.policy.webhook_url);
        let text = scripts::credential_helper(repository, url.as_str(), access.expose_secret());
        Ok(SecretString::from(text))
    }

    /// Whether the project has a setup script.
    pub(super) fn has_setup(&self) -> bool {
        self.found.has("setup.sh")
    }

    /// Runs the project's setup script, if it has one.
    pub(super) async fn setup(&mut self) -> Result<(), AppError> {
        if !self.found.has("setup.sh") {
            return Ok(());
        }
        let deadline = self.policy.setup_deadline;
        let script = scripts::setup(&self.private, &self.prepared.working_dir);
        let mut outcome = self.run(script, deadline).await?;
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
            let shown = self.run(scripts::end_of_setup(&self.private), QUICK).await;
            outcome.output = shown.map(|shown| shown.output).unwrap_or_default();
            format!("was ended after {} s", deadline.as_secs())
        };
        let said = report::quote(&outcome.output, &self.hidden().await);
        let said = said.map_or_else(String::new, |said| format!(" Its last words: {said}"));
        self.note(&format!(
            "The setup script .openhands/setup.sh {how}.{said}"
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
        let outcome = self.run(script, QUICK).await?;
        if !outcome.is_success() {
            let said = report::quote(&outcome.output, &self.hidden().await);
            self.note(&format!(
                "The git hook .openhands/pre-commit.sh was not installed: {}",
                said.as_deref().unwrap_or("no reason was given.")
            ));
        }
        Ok(())
    }

    /// Reads the project's agent hooks for the launch, and looks whether its skills can be read (the agent server loads them
    /// itself when the conversation begins).
    pub(super) async fn skills(&mut self) {
        let (workspace, project) = (&self.ports.workspace, &self.prepared.working_dir);
        let hooks = async {
            if self.found.has("hooks.json") {
                Some(workspace.hooks(self.at, project).await)
            } else {
                None
            }
        };
        let skills = async {
            if self.found.has("skills") {
                Some(workspace.skills(self.at, project).await)
            } else {
                None
            }
        };
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
                self.note("No skill of the project could be loaded.");
            }
            Some(Err(error)) => {
                self.note(&format!("The project's skills could not be read: {error}."));
            }
            None | Some(Ok(_)) => {}
        }
    }

    /// The command that removes what the preparation of a start has left in its private directory.
    pub(super) fn tidying(task: &StartTask) -> ShellCommand {
        ShellCommand {
            script: scripts::tidy(&task.id.to_string()),
            directory: None,
            deadline: QUICK,
        }
    }

    /// What the launch needs.
    pub(super) fn done(self) -> Prepared {
        self.prepared
    }

    async fn run(&self, script: String, deadline: Duration) -> Result<ShellOutcome, AppError> {
        let command = ShellCommand {
            script: format!("{}{script}", scripts::NO_KEYS),
            directory: None,
            deadline,
        };
        Ok(self
            .insisting(|| self.ports.workspace.run(self.at, &command))
            .await?)
    }

    /// An agent server that is away for a moment (the setup script ended it, and it is started again) ends no start. What
    /// it may have begun can be asked again: see [`scripts`].
    async fn insisting<T, F: Future<Output = Result<T, AgentError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, AgentError> {
        for _ in 0..REPEATS {
            match ask().await {
                Err(AgentError::Unreachable(cause)) => {
                    tracing::debug!(%cause, "agent server away while preparing; asking again");
                    self.back().await;
                }
                done => return done,
            }
        }
        ask().await
    }

    /// Waits until it answers, for a while.
    async fn back(&self) {
        let answers = async {
            loop {
                tokio::time::sleep(PAUSE).await;
                if self
                    .ports
                    .agents
                    .is_alive(&self.at.sandbox, &self.at.url)
                    .await
                {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(AWAY, answers).await;
    }

    fn note(&mut self, note: &str) {
        self.prepared.notes.push(note.to_owned());
    }

    /// What no quotation of a command's output may show. The sandbox's own keys are in it, as far as they can be had.
    async fn hidden(&self) -> Hidden {
        let mut secrets = self.plan.secrets.clone();
        secrets.push(self.at.key.clone());
        let found = self.ports.sandboxes.find(&Scope::System, &self.sandbox);
        if let Ok(Some(sandbox)) = found.await {
            let context = Sandbox::key_context(&sandbox.id);
            let opened = self.ports.cipher.open(&context, &sandbox.secret_key);
            secrets.extend(opened.ok());
        }
        Hidden::new(secrets, &[&self.workspace, &self.root, &self.private])
    }

    async fn failed(&self, what: &str, outcome: &ShellOutcome) -> AppError {
        let said = report::quote(&outcome.output, &self.hidden().await);
        let why = match (&said, outcome.exit_code) {
            (Some(said), _) => said.clone(),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => format!("no end within {} s", QUICK.as_secs()),
        };
        AppError::refused(ErrorClass::Upstream, format!("{what}: {why}"))
    }
}

fn already_there(repository: &Repository, branch: Option<&str>) -> String {
    let on = branch.map_or_else(String::new, |branch| format!(", on branch {branch}"));
    format!(
        "Repository {} was in the sandbox already and is used as it is{on}.",
        repository.name
    )
}

/// Where sandboxes ask for a provider's token.
fn secrets_url(webhooks: &Url) -> Url {
    let mut url = webhooks.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push("secrets");
    }
    url
}
