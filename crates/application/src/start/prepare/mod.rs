//! Preparing a sandbox for a conversation: its repository, setup script, git hooks, skills and agent hooks.

use serde_json::Value;

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
