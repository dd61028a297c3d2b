//! A fake workspace of a sandbox.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::agent::workspace::{ProjectSkill, SandboxWorkspace, ShellCommand, ShellOutcome};
use domain::agent::{AgentEndpoint, AgentError};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// A workspace without a sandbox. Commands are recorded and succeed without output, unless a test configures another result. Files
/// are kept in memory.
#[derive(Debug, Default)]
pub struct FakeWorkspace(Mutex<FakeWorkspaceState>);

#[derive(Debug, Default)]
struct FakeWorkspaceState {
    commands: Vec<ShellCommand>,
    files: BTreeMap<String, String>,
    /// Configured results by a part of the script.
    outcomes: Vec<(String, ShellOutcome)>,
    /// Parts of the scripts that hang.
    hanging: Vec<String>,
    /// Parts of the scripts whose connection breaks, and how often it still does.
    lost: Vec<(String, usize)>,
    hooks: Option<Value>,
    skills: Vec<ProjectSkill>,
    changes: Value,
    diff: Value,
    git_requests: Vec<(String, Option<String>)>,
    is_unresponsive: bool,
}

impl FakeWorkspace {
    /// The commands so far.
    pub fn commands(&self) -> Vec<ShellCommand> {
        self.lock().commands.clone()
    }

    /// Number of commands so far whose script contains `part`.
    pub fn count(&self, part: &str) -> usize {
        let state = self.lock();
        let all = state.commands.iter();
        all.filter(|command| command.script.contains(part)).count()
    }

    /// The written files, by path.
    pub fn files(&self) -> BTreeMap<String, String> {
        self.lock().files.clone()
    }

    /// Sets the result of commands whose script contains `part`. The last call wins.
    pub fn set_command_result(&self, part: &str, exit_code: Option<i32>, output: &str) {
        let outcome = ShellOutcome {
            exit_code,
            output: output.to_owned(),
        };
        let mut state = self.lock();
        state.hanging.retain(|hanging| hanging != part);
        state.outcomes.push((part.to_owned(), outcome));
    }

    /// Makes commands whose script contains `part` hang until [`Self::set_command_result`] sets their result.
    pub fn hang_commands(&self, part: &str) {
        self.lock().hanging.push(part.to_owned());
    }

    /// Breaks the connection of the next `times` commands whose script contains `part`.
    pub fn drop_connections(&self, part: &str, times: usize) {
        self.lock().lost.push((part.to_owned(), times));
    }

    /// Sets the agent hooks and skills of every project.
    pub fn set_project(&self, hooks: Option<Value>, skills: Vec<ProjectSkill>) {
        let mut state = self.lock();
        (state.hooks, state.skills) = (hooks, skills);
    }

    /// Sets the changes of every repository and the diff of every file.
    pub fn set_git(&self, changes: Value, diff: Value) {
        let mut state = self.lock();
        (state.changes, state.diff) = (changes, diff);
    }

    /// The requests for changes and diffs: path and reference.
    pub fn git_requests(&self) -> Vec<(String, Option<String>)> {
        self.lock().git_requests.clone()
    }

    /// Makes calls for git, hooks and skills fail.
    pub fn stop_responding(&self) {
        self.lock().is_unresponsive = true;
    }

    fn lock(&self) -> MutexGuard<'_, FakeWorkspaceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_if_responsive(&self) -> Result<MutexGuard<'_, FakeWorkspaceState>, AgentError> {
        let state = self.lock();
        if state.is_unresponsive {
            let reason = "the fake workspace does not respond".to_owned();
            return Err(AgentError::Malformed(reason));
        }
        Ok(state)
    }
}

#[async_trait]
impl SandboxWorkspace for FakeWorkspace {
    async fn run(
        &self,
        _: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<ShellOutcome, AgentError> {
        let (hangs, outcome) = {
            let mut state = self.lock();
            state.commands.push(command.clone());
            let has = |part: &str| command.script.contains(part);
            if let Some((_, left)) = state.lost.iter_mut().find(|(part, n)| *n > 0 && has(part)) {
                *left -= 1;
                return Err(AgentError::Unreachable("the fake connection broke".into()));
            }
            let configured = state.outcomes.iter().rev().find(|(part, _)| has(part));
            let success = ShellOutcome {
                exit_code: Some(0),
                output: String::new(),
            };
            let outcome = configured.map_or(success, |(_, outcome)| outcome.clone());
            (state.hanging.iter().any(|part| has(part)), outcome)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(outcome)
    }

    async fn write(
        &self,
        _: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError> {
        let text = content.expose_secret().to_owned();
        self.lock().files.insert(path.to_owned(), text);
        Ok(())
    }

    async fn read(
        &self,
        _: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError> {
        let state = self.lock();
        let text = state.files.get(path);
        Ok(text.filter(|text| text.len() <= limit).cloned())
    }

    async fn list(
        &self,
        _: &AgentEndpoint,
        directory: &str,
        limit: usize,
    ) -> Result<Vec<String>, AgentError> {
        let state = self.lock_if_responsive()?;
        let below = format!("{}/", directory.trim_end_matches('/'));
        let mut files: Vec<String> = state
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(&below).map(str::to_owned))
            .collect();
        files.sort_unstable();
        files.truncate(limit);
        Ok(files)
    }

    async fn changes(
        &self,
        _: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let mut state = self.lock_if_responsive()?;
        let request = (path.to_owned(), reference.map(str::to_owned));
        state.git_requests.push(request);
        Ok(state.changes.clone())
    }

    async fn diff(
        &self,
        _: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let mut state = self.lock_if_responsive()?;
        let request = (path.to_owned(), reference.map(str::to_owned));
        state.git_requests.push(request);
        Ok(state.diff.clone())
    }

    async fn skills(&self, _: &AgentEndpoint, _: &str) -> Result<Vec<ProjectSkill>, AgentError> {
        Ok(self.lock_if_responsive()?.skills.clone())
    }

    async fn hooks(&self, _: &AgentEndpoint, _: &str) -> Result<Option<Value>, AgentError> {
        Ok(self.lock_if_responsive()?.hooks.clone())
    }
}
