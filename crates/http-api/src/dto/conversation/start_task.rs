//! Start tasks on the wire; see `docs/reference/wire/start-tasks.md`. Clients see more of a task as it advances.

use std::collections::BTreeMap;

use application::settings::MASK;
use domain::clock::Timestamp;
use domain::conversation::{MessageInput, Trigger};
use domain::git::GitProvider;
use domain::id::{ConversationId, SandboxId, StartTaskId, UserId};
use domain::page::PageRequest;
use domain::start_task::{
    AgentType, StartRequest, StartStatus, StartTask, StartTaskFilter, StartTaskOrder,
};
use serde_json::Value;
use uuid::Uuid;

use crate::decode::model;
use crate::dto::conversation::message::FirstMessageDto;
use crate::dto::conversation::start_request::{PluginInput, ProcessorDto, SuggestedTaskInput};
use crate::dto::page::PageQuery;

/// A start task.
#[model(response = AppConversationStartTask, from(task: StartTask))]
pub(crate) struct StartTaskDto {
    /// 32 hex digits.
    id: StartTaskId,
    #[schema(value_type = Option<String>, required)]
    #[from(task.owner.user())]
    created_by_user_id: UserId,
    status: StartStatus,
    /// Why the task failed, or when READY, what deviates from the request.
    detail: Option<String>,
    /// The conversation, once READY.
    #[from((task.status == StartStatus::Ready).then_some(task.conversation_id))]
    app_conversation_id: Option<ConversationId>,
    /// The sandbox, once chosen.
    #[from(has_sandbox(task.status, task.agent_server_url.is_some(), &task.timings).then_some(task.sandbox_id))]
    sandbox_id: Option<SandboxId>,
    /// The agent server's URL, once it responds.
    #[from(task.agent_server_url.filter(|_| task.status >= StartStatus::StartingConversation))]
    agent_server_url: Option<String>,
    #[from(task.request.into())]
    request: StartRequestDto,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Deviations from the request that did not stop the start.
    notes: Vec<String>,
    /// Milliseconds spent in each status so far.
    timings: BTreeMap<String, u64>,
}

/// A start as administrators see it: how it went, without what it was for.
#[model(response = AdministeredStart, from(task: StartTask))]
pub(crate) struct AdministeredStartDto {
    id: StartTaskId,
    #[schema(value_type = String)]
    #[from(task.owner.user())]
    created_by_user_id: UserId,
    status: StartStatus,
    /// Why the task failed.
    #[from((task.status == StartStatus::Error).then_some(task.detail).flatten())]
    detail: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Milliseconds spent in each status so far.
    timings: BTreeMap<String, u64>,
}

/// The request with its defaults and without the values of secrets.
#[model(response = AppConversationStartRequestEcho, from(request: StartRequest))]
pub(crate) struct StartRequestDto {
    sandbox_id: Option<SandboxId>,
    /// With dashes.
    #[from(request.conversation_id.map(ConversationId::uuid))]
    conversation_id: Option<Uuid>,
    #[schema(value_type = Option<FirstMessageDto>)]
    initial_message: Option<MessageInput>,
    system_message_suffix: Option<String>,
    #[schema(value_type = Option<Vec<ProcessorDto>>)]
    processors: Option<Vec<Value>>,
    llm_model: Option<String>,
    agent_profile_id: Option<String>,
    selected_repository: Option<String>,
    selected_branch: Option<String>,
    git_provider: Option<GitProvider>,
    #[schema(value_type = Option<SuggestedTaskInput>)]
    suggested_task: Option<Value>,
    title: Option<String>,
    trigger: Option<Trigger>,
    pr_number: Vec<i64>,
    /// 32 hex digits.
    parent_conversation_id: Option<ConversationId>,
    agent_type: AgentType,
    public: Option<bool>,
    #[schema(value_type = Option<Vec<PluginInput>>)]
    plugins: Option<Vec<Value>>,
    /// Names, each with a mask instead of its value.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    #[from(request.secret_names.map(masked))]
    secrets: Option<BTreeMap<String, &'static str>>,
}

/// Whether the task has chosen its sandbox.
fn has_sandbox(status: StartStatus, has_url: bool, timings: &BTreeMap<String, u64>) -> bool {
    match status {
        // A failed task shows its progress: a status has a time once the task has left it.
        StartStatus::Error => {
            has_url || timings.contains_key(StartStatus::WaitingForSandbox.as_str())
        }
        status => status >= StartStatus::WaitingForSandbox,
    }
}

fn masked(names: Vec<String>) -> BTreeMap<String, &'static str> {
    names.into_iter().map(|name| (name, MASK)).collect()
}

/// The query for counting start tasks.
#[model(query, into = StartTaskFilter)]
pub(crate) struct StartTaskCountQuery {
    /// Only READY tasks of this conversation.
    #[decode(rename = "conversation_id__eq")]
    #[param(format = Uuid)]
    conversation_id: Option<ConversationId>,
    #[decode(rename = "created_at__gte")]
    created_from: Option<Timestamp>,
}

/// The query for searching start tasks, in addition to [`StartTaskCountQuery`] and [`PageQuery`].
#[model(query)]
pub(crate) struct StartTaskSearchQuery {
    #[decode(flatten)]
    filter: StartTaskCountQuery,
    #[decode(rename = "sort_order", default)]
    #[param(inline)]
    order: StartTaskOrder,
    #[decode(flatten)]
    page: PageQuery,
}

impl StartTaskSearchQuery {
    pub(crate) fn into_parts(self) -> (StartTaskFilter, StartTaskOrder, PageRequest) {
        (self.filter.into(), self.order, self.page.into())
    }
}

/// `?ids=…&ids=…`
#[model(query)]
pub(crate) struct StartTaskIdsQuery {
    /// The tasks, at most 100.
    #[param(value_type = Vec<Uuid>)]
    pub ids: Vec<StartTaskId>,
}
