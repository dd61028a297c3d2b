//! The workspace of a sandbox on the wire, and switching the agent's model; see `docs/reference/wire/conversations.md`.

use application::inspection::{EventHooks, Hook, HookMatcher};
use domain::agent::workspace::ProjectSkill;
use serde_json::Value;
use utoipa::ToSchema;

use crate::decode::model;
use crate::dto::each;

/// The file to read.
#[model(query)]
pub(crate) struct FileQuery {
    /// Path in the sandbox. `/workspace/project` stands for the workspace, wherever it is. If absent, the plan.
    #[param(required = false, default = "/workspace/project/PLAN.md")]
    pub file_path: Option<String>,
}

/// The directory to list.
#[model(query)]
pub(crate) struct FilesQuery {
    #[decode(default = "/workspace/project")]
    pub path: String,
}

/// The repository, or a file in it.
#[model(query)]
pub(crate) struct GitQuery {
    pub path: String,
    /// The revision to compare with; if absent, the base branch.
    #[decode(rename = "ref")]
    pub reference: Option<String>,
}

/// A changed file in the agent server's form, for the document.
#[derive(Debug, ToSchema)]
#[schema(as = GitChange)]
#[expect(dead_code, reason = "for the document only; it is passed on")]
pub(crate) struct GitChangeDto {
    /// `ADDED`, `UPDATED`, `DELETED` or `MOVED`.
    #[schema(value_type = Value, required = false)]
    status: Value,
    /// Relative to the repository.
    #[schema(value_type = Value, required = false)]
    path: Value,
}

/// A file before and after the change in the agent server's form, for the document.
#[derive(Debug, ToSchema)]
#[schema(as = GitDiff)]
#[expect(dead_code, reason = "for the document only; it is passed on")]
pub(crate) struct GitDiffDto {
    /// The text after the change.
    #[schema(value_type = Value, required = false)]
    modified: Value,
    /// The text before the change.
    #[schema(value_type = Value, required = false)]
    original: Value,
}

/// The skills of a project.
#[model(response = GetConversationSkillsResponse, from(all: Vec<ProjectSkill>))]
pub(crate) struct ProjectSkillsDto {
    #[from(each(all))]
    skills: Vec<ProjectSkillDto>,
}

/// A skill of a project.
#[model(response = ConversationSkill, from(skill: ProjectSkill))]
pub(crate) struct ProjectSkillDto {
    name: String,
    /// `repo`, `knowledge` or `agentskills`.
    #[from(skill.kind)]
    r#type: String,
    content: String,
    triggers: Vec<String>,
}

/// The agent hooks of a project.
#[model(response = GetHooksResponse, from(events: Vec<EventHooks>))]
pub(crate) struct ProjectHooksDto {
    #[from(each(events))]
    hooks: Vec<EventHooksDto>,
}

/// The hooks of one event.
#[model(response = HookEvent, from(hooks: EventHooks))]
pub(crate) struct EventHooksDto {
    /// `pre_tool_use`, `post_tool_use`, `user_prompt_submit`, `session_start`, `session_end` or `stop`.
    #[from(hooks.event)]
    event_type: &'static str,
    #[from(each(hooks.matchers))]
    matchers: Vec<HookMatcherDto>,
}

/// Hooks for the tools that a pattern matches.
#[model(response = HookMatcher, from(found: HookMatcher))]
pub(crate) struct HookMatcherDto {
    matcher: String,
    #[from(each(found.hooks))]
    hooks: Vec<HookDto>,
}

/// A hook.
#[model(response = HookDefinition, from(hook: Hook))]
pub(crate) struct HookDto {
    #[from(hook.kind)]
    r#type: String,
    command: String,
    /// Timeout in seconds.
    timeout: u64,
    #[from(hook.is_async)]
    r#async: bool,
}

/// Switches to the model of a profile.
#[model(body = SwitchProfileRequest)]
pub(crate) struct SwitchProfileDto {
    /// The name of one of the caller's profiles.
    #[validate(length(min = 1))]
    pub profile_name: String,
}

/// Switches an ACP agent to another model.
#[model(body = SwitchAcpModelRequest)]
pub(crate) struct SwitchAcpModelDto {
    /// The agent's name for the model.
    #[validate(length(min = 1, max = 1000))]
    pub model: String,
}
