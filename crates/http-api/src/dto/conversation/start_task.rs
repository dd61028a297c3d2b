//! Start tasks on the wire; see `docs/reference/wire/start-tasks.md`. Clients see more of a task as it advances.

use std::collections::BTreeMap;

use domain::clock::Timestamp;
use domain::conversation::{GitProvider, MessageInput, Trigger};
use domain::id::{ConversationId, SandboxId, StartTaskId, UserId};
use domain::page::PageRequest;
use domain::start_task::{
    AgentType, StartRequest, StartStatus, StartTask, StartTaskFilter, StartTaskOrder,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::decode::{Choice, model};
use crate::dto::conversation::message::FirstMessageDto;
use crate::dto::conversation::start_request::{PluginInput, ProcessorDto, SuggestedTaskInput};
use crate::dto::enums::{AgentTypeSchema, GitProviderSchema, StartStatusSchema, TriggerSchema};
use crate::dto::page::PageQuery;
use crate::dto::secret_text::MASK;

/// A start task.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AppConversationStartTask)]
pub struct StartTaskDto {
    /// 32 hex digits.
    #[schema(value_type = String)]
    id: StartTaskId,
    /// The user who started it.
    #[schema(value_type = Option<String>, required)]
    created_by_user_id: UserId,
    #[schema(value_type = StartStatusSchema)]
    status: StartStatus,
    /// Why the task failed, or when READY, what deviates from the request.
    #[schema(required)]
    detail: Option<String>,
    /// The conversation, once READY.
    #[schema(value_type = Option<String>, required)]
    app_conversation_id: Option<ConversationId>,
    /// The sandbox, once chosen.
    #[schema(value_type = Option<String>, required)]
    sandbox_id: Option<SandboxId>,
    /// The agent server's URL, once it responds.
    #[schema(required)]
    agent_server_url: Option<String>,
    request: StartRequestDto,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// Deviations from the request that did not stop the start.
    notes: Vec<String>,
    /// Milliseconds spent in each status so far.
    timings: BTreeMap<String, u64>,
}

/// The request with its defaults and without the values of secrets.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AppConversationStartRequestEcho)]
pub struct StartRequestDto {
    #[schema(value_type = Option<String>, required)]
    sandbox_id: Option<SandboxId>,
    /// With dashes.
    #[schema(required)]
    conversation_id: Option<Uuid>,
    #[schema(value_type = Option<FirstMessageDto>, required)]
    initial_message: Option<MessageInput>,
    #[schema(required)]
    system_message_suffix: Option<String>,
    #[schema(value_type = Option<Vec<ProcessorDto>>, required)]
    processors: Option<Vec<Value>>,
    #[schema(required)]
    llm_model: Option<String>,
    #[schema(required)]
    agent_profile_id: Option<String>,
    #[schema(required)]
    selected_repository: Option<String>,
    #[schema(required)]
    selected_branch: Option<String>,
    #[schema(value_type = Option<GitProviderSchema>, required)]
    git_provider: Option<GitProvider>,
    #[schema(value_type = Option<SuggestedTaskInput>, required)]
    suggested_task: Option<Value>,
    #[schema(required)]
    title: Option<String>,
    #[schema(value_type = Option<TriggerSchema>, required)]
    trigger: Option<Trigger>,
    pr_number: Vec<i64>,
    /// 32 hex digits.
    #[schema(value_type = Option<String>, required)]
    parent_conversation_id: Option<ConversationId>,
    #[schema(value_type = AgentTypeSchema)]
    agent_type: AgentType,
    #[schema(required)]
    public: Option<bool>,
    #[schema(value_type = Option<Vec<PluginInput>>, required)]
    plugins: Option<Vec<Value>>,
    /// Names, each with a mask instead of its value.
    #[schema(value_type = Option<BTreeMap<String, String>>, required)]
    secrets: Option<BTreeMap<String, &'static str>>,
}

impl From<StartRequest> for StartRequestDto {
    fn from(request: StartRequest) -> Self {
        let masked = |names: Vec<String>| names.into_iter().map(|name| (name, MASK)).collect();
        Self {
            sandbox_id: request.sandbox_id,
            conversation_id: request.conversation_id.map(ConversationId::uuid),
            initial_message: request.initial_message,
            system_message_suffix: request.system_message_suffix,
            processors: request.processors,
            llm_model: request.llm_model,
            agent_profile_id: request.agent_profile_id,
            selected_repository: request.selected_repository,
            selected_branch: request.selected_branch,
            git_provider: request.git_provider,
            suggested_task: request.suggested_task,
            title: request.title,
            trigger: request.trigger,
            pr_number: request.pr_number,
            parent_conversation_id: request.parent_conversation_id,
            agent_type: request.agent_type,
            public: request.public,
            plugins: request.plugins,
            secrets: request.secret_names.map(masked),
        }
    }
}

impl From<StartTask> for StartTaskDto {
    fn from(task: StartTask) -> Self {
        let ready = task.status == StartStatus::Ready;
        let reached_sandbox = match task.status {
            // A failed task shows its progress: a status has a time once the task has left it.
            StartStatus::Error => {
                task.agent_server_url.is_some()
                    || task
                        .timings
                        .contains_key(StartStatus::WaitingForSandbox.as_str())
            }
            status => status >= StartStatus::WaitingForSandbox,
        };
        let reached_agent = task.status >= StartStatus::StartingConversation;
        Self {
            id: task.id,
            created_by_user_id: task.owner,
            status: task.status,
            detail: task.detail,
            app_conversation_id: ready.then_some(task.conversation_id),
            sandbox_id: reached_sandbox.then_some(task.sandbox_id),
            agent_server_url: task.agent_server_url.filter(|_| reached_agent),
            request: task.request.into(),
            created_at: task.created_at,
            updated_at: task.updated_at,
            notes: task.notes,
            timings: task.timings,
        }
    }
}

/// The order of start tasks.
#[derive(Debug, Clone, Copy, Default, Choice, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = AppConversationStartTaskSortOrder, default = "CREATED_AT_DESC")]
pub enum StartTaskOrderDto {
    /// Oldest first.
    CreatedAt,
    /// Newest first.
    #[default]
    CreatedAtDesc,
    /// Longest unchanged first.
    UpdatedAt,
    /// Last changed first.
    UpdatedAtDesc,
}

impl From<StartTaskOrderDto> for StartTaskOrder {
    fn from(order: StartTaskOrderDto) -> Self {
        match order {
            StartTaskOrderDto::CreatedAt => Self::CreatedAt,
            StartTaskOrderDto::CreatedAtDesc => Self::CreatedAtDesc,
            StartTaskOrderDto::UpdatedAt => Self::UpdatedAt,
            StartTaskOrderDto::UpdatedAtDesc => Self::UpdatedAtDesc,
        }
    }
}

/// The query for counting start tasks.
#[model(query)]
#[derive(Debug, Clone)]
pub struct StartTaskCountQuery {
    /// Only READY tasks of this conversation.
    #[decode(rename = "conversation_id__eq")]
    #[param(value_type = String, format = Uuid, required = false)]
    conversation: Option<ConversationId>,
    /// Created at or after this time.
    #[decode(rename = "created_at__gte")]
    #[param(value_type = String, format = DateTime, required = false)]
    created_from: Option<Timestamp>,
}

impl From<StartTaskCountQuery> for StartTaskFilter {
    fn from(query: StartTaskCountQuery) -> Self {
        Self {
            conversation_id: query.conversation,
            created_from: query.created_from,
        }
    }
}

/// The query for searching start tasks, in addition to [`StartTaskCountQuery`] and [`PageQuery`].
#[model(query)]
#[derive(Debug, Clone)]
pub struct StartTaskSearchQuery {
    #[decode(flatten)]
    filter: StartTaskCountQuery,
    /// Order.
    #[decode(rename = "sort_order", default)]
    #[param(inline)]
    order: StartTaskOrderDto,
    #[decode(flatten)]
    page: PageQuery,
}

impl StartTaskSearchQuery {
    /// Filter, order and page.
    pub fn into_parts(self) -> (StartTaskFilter, StartTaskOrder, PageRequest) {
        (self.filter.into(), self.order.into(), self.page.into())
    }
}

/// `?ids=…&ids=…`
#[model(query)]
#[derive(Debug, Clone)]
pub struct StartTaskIdsQuery {
    /// The tasks, at most 100.
    #[param(value_type = Vec<Uuid>)]
    pub ids: Vec<StartTaskId>,
}
