//! The workspace of a sandbox on the wire, and switching the agent's model; see `docs/reference/wire/conversations.md`.

use application::inspection::{EventHooks, Hook, HookMatcher};
use domain::agent::workspace::ProjectSkill;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::decode::model;

/// The file to read.
#[model(query)]
#[derive(Debug)]
pub struct FileQuery {
    /// Path in the sandbox. `/workspace/project` stands for the workspace, wherever it is. If absent, the plan.
    #[param(required = false, default = "/workspace/project/PLAN.md")]
    pub file_path: Option<String>,
}

/// The directory to list.
#[model(query)]
#[derive(Debug)]
pub struct FilesQuery {
    /// Path in the sandbox. `/workspace/project` stands for the workspace, wherever it is.
    #[decode(default = "/workspace/project")]
    pub path: String,
}

/// The repository, or a file in it.
#[model(query)]
#[derive(Debug)]
pub struct GitQuery {
    /// Path in the sandbox. `/workspace/project` stands for the workspace, wherever it is.
    pub path: String,
    /// The revision to compare with; if absent, the base branch.
    #[decode(rename = "ref")]
    pub reference: Option<String>,
}

/// A changed file in the agent server's form, for the document.
#[derive(Debug, ToSchema)]
#[schema(as = GitChange)]
#[expect(dead_code, reason = "for the document only; it is passed on")]
pub struct GitChangeDto {
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
pub struct GitDiffDto {
    /// The text after the change.
    #[schema(value_type = Value, required = false)]
    modified: Value,
    /// The text before the change.
    #[schema(value_type = Value, required = false)]
    original: Value,
}

/// The skills of a project.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GetConversationSkillsResponse)]
pub struct ProjectSkillsDto {
    skills: Vec<ProjectSkillDto>,
}

/// A skill of a project.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConversationSkill)]
pub struct ProjectSkillDto {
    name: String,
    /// `repo`, `knowledge` or `agentskills`.
    r#type: String,
    content: String,
    triggers: Vec<String>,
}

impl From<Vec<ProjectSkill>> for ProjectSkillsDto {
    fn from(skills: Vec<ProjectSkill>) -> Self {
        let shown = |skill: ProjectSkill| ProjectSkillDto {
            name: skill.name,
            r#type: skill.kind,
            content: skill.content,
            triggers: skill.triggers,
        };
        Self {
            skills: skills.into_iter().map(shown).collect(),
        }
    }
}

/// The agent hooks of a project.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GetHooksResponse)]
pub struct ProjectHooksDto {
    hooks: Vec<EventHooksDto>,
}

/// The hooks of one event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HookEvent)]
pub struct EventHooksDto {
    /// `pre_tool_use`, `post_tool_use`, `user_prompt_submit`, `session_start`, `session_end` or `stop`.
    event_type: &'static str,
    matchers: Vec<HookMatcherDto>,
}

/// Hooks for the tools that a pattern matches.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HookMatcher)]
pub struct HookMatcherDto {
    matcher: String,
    hooks: Vec<HookDto>,
}

/// A hook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HookDefinition)]
pub struct HookDto {
    r#type: String,
    command: String,
    /// Timeout in seconds.
    timeout: u64,
    r#async: bool,
}

impl From<Vec<EventHooks>> for ProjectHooksDto {
    fn from(events: Vec<EventHooks>) -> Self {
        Self {
            hooks: events.into_iter().map(EventHooksDto::from).collect(),
        }
    }
}

impl From<EventHooks> for EventHooksDto {
    fn from(event: EventHooks) -> Self {
        Self {
            event_type: event.event,
            matchers: event
                .matchers
                .into_iter()
                .map(HookMatcherDto::from)
                .collect(),
        }
    }
}

impl From<HookMatcher> for HookMatcherDto {
    fn from(matcher: HookMatcher) -> Self {
        Self {
            matcher: matcher.matcher,
            hooks: matcher.hooks.into_iter().map(HookDto::from).collect(),
        }
    }
}

impl From<Hook> for HookDto {
    fn from(hook: Hook) -> Self {
        Self {
            r#type: hook.kind,
            command: hook.command,
            timeout: hook.timeout,
            r#async: hook.is_async,
        }
    }
}

/// Switches to the model of a profile.
#[model(body)]
#[derive(Debug)]
#[schema(as = SwitchProfileRequest)]
pub struct SwitchProfileDto {
    /// The name of one of the caller's profiles.
    #[validate(length(min = 1))]
    pub profile_name: String,
}

/// Switches an ACP agent to another model.
#[model(body)]
#[derive(Debug)]
#[schema(as = SwitchAcpModelRequest)]
pub struct SwitchAcpModelDto {
    /// The agent's name for the model.
    #[validate(length(min = 1, max = 1000))]
    pub model: String,
}
