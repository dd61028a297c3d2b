//! Conversations on the wire, and the queries that filter them; see `docs/reference/wire/conversations.md`.

use std::collections::BTreeMap;

use application::sandboxes::SandboxService;
use application::start::agent_directory;
use domain::agent::AgentKind;
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationOrder, ConversationView,
    ExecutionStatus, Metrics, Trigger,
};
use domain::git::GitProvider;
use domain::id::{ConversationId, SandboxId, UserId};
use domain::page::PageRequest;
use domain::sandbox::SandboxStatus;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::addresses::Addresses;
use crate::decode::{Decode, FieldErrors, Patch, Path, model};
use crate::dto::PageDto;
use crate::dto::page::PageQuery;
use crate::dto::secret_text::SecretText;

/// A conversation.
#[model(response = AppConversation, from((conversation, around): (Conversation, ConversationSurroundings)))]
pub(crate) struct ConversationDto {
    /// 32 hex digits.
    id: ConversationId,
    #[schema(value_type = Option<String>, required)]
    #[from(conversation.owner.user())]
    created_by_user_id: UserId,
    /// The sandbox that it runs in.
    sandbox_id: SandboxId,
    selected_repository: Option<String>,
    selected_branch: Option<String>,
    git_provider: Option<GitProvider>,
    title: Option<String>,
    trigger: Option<Trigger>,
    #[from(conversation.pr_numbers)]
    pr_number: Vec<i64>,
    llm_model: Option<String>,
    /// `openhands` or `acp`.
    #[from(conversation.agent_kind.to_string())]
    agent_kind: String,
    #[from(conversation.metrics.into())]
    metrics: MetricsDto,
    #[from(conversation.parent)]
    parent_conversation_id: Option<ConversationId>,
    /// Its parts, oldest first.
    #[from(around.children)]
    sub_conversation_ids: Vec<ConversationId>,
    public: Option<bool>,
    tags: BTreeMap<String, String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// MISSING if the sandbox is deleted.
    #[from(around.sandbox_status)]
    sandbox_status: SandboxStatus,
    /// The state of the agent; `null` if unknown.
    #[from(known_status(around.sandbox_status, conversation.execution_status))]
    execution_status: Option<ExecutionStatus>,
    /// Its URL at the agent server, while the sandbox is RUNNING.
    #[from(around.url)]
    conversation_url: Option<String>,
    #[from(around.session_key)]
    session_api_key: Option<SecretText>,
    /// The agent behind an `acp` conversation.
    #[from(around.acp_server)]
    acp_server: Option<String>,
    #[from(around.launched_profile)]
    launched_agent_profile: Option<LaunchedProfileDto>,
    /// `null` until the sandbox has run, and once it is deleted.
    #[from(around.workspace)]
    workspace: Option<ConversationWorkspaceDto>,
}

/// Where the agent works.
#[model(response = ConversationWorkspace)]
pub(crate) struct ConversationWorkspaceDto {
    /// The absolute path in the sandbox. Uploads belong below it.
    working_dir: String,
}

/// Cost and tokens so far.
#[model(response = MetricsSnapshot, from(metrics: Metrics))]
pub(crate) struct MetricsDto {
    /// Always `default`: the totals are over all models.
    #[from("default")]
    model_name: &'static str,
    /// US dollars.
    accumulated_cost: f64,
    /// US dollars.
    max_budget_per_task: Option<f64>,
    #[from(metrics.into())]
    accumulated_token_usage: TokenUsageDto,
}

/// Tokens so far.
#[model(response = TokenUsage, from(metrics: Metrics))]
pub(crate) struct TokenUsageDto {
    /// Always empty: the totals are over all models.
    #[from("")]
    model: &'static str,
    prompt_tokens: i64,
    completion_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    context_window: i64,
    per_turn_token: i64,
    /// Always empty: the totals are over all responses.
    #[from("")]
    response_id: &'static str,
}

/// The agent profile that a conversation was started with.
#[model(response = LaunchedAgentProfile)]
pub(crate) struct LaunchedProfileDto {
    agent_profile_id: Uuid,
    revision: i64,
}

impl LaunchedProfileDto {
    fn from_tags(tags: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            agent_profile_id: tags.get("agentprofileid")?.parse().ok()?,
            revision: tags.get("agentprofilerevision")?.parse().ok()?,
        })
    }
}

impl ConversationDto {
    /// Converts a conversation for its owner.
    pub(crate) fn of(
        view: ConversationView,
        sandboxes: &SandboxService,
        addresses: &Addresses,
    ) -> Self {
        split_view(view, sandboxes, addresses).into()
    }
}

/// What the owner of a conversation sees besides its record.
pub(crate) struct ConversationSurroundings {
    pub(crate) sandbox_status: SandboxStatus,
    /// The URL of the conversation at the agent server, while the sandbox is RUNNING.
    pub(crate) url: Option<String>,
    pub(crate) session_key: Option<SecretText>,
    pub(crate) children: Vec<ConversationId>,
    acp_server: Option<String>,
    launched_profile: Option<LaunchedProfileDto>,
    workspace: Option<ConversationWorkspaceDto>,
}

pub(crate) fn split_view(
    view: ConversationView,
    sandboxes: &SandboxService,
    addresses: &Addresses,
) -> (Conversation, ConversationSurroundings) {
    let (id, tags) = (view.conversation.id, &view.conversation.tags);
    let is_acp = view.conversation.agent_kind == AgentKind::Acp;
    let sandbox = view.sandbox.as_ref();
    let url = sandbox.and_then(|sandbox| addresses.agent_server(sandbox));
    let working_dir = agent_directory(&view);
    let surroundings = ConversationSurroundings {
        sandbox_status: sandbox.map_or(SandboxStatus::Missing, |sandbox| sandbox.status),
        url: url.map(|url| format!("{url}/api/conversations/{id}")),
        session_key: sandbox
            .and_then(|sandbox| sandboxes.session_key(sandbox))
            .map(SecretText::from),
        children: view.children,
        acp_server: tags.get("acpserver").filter(|_| is_acp).cloned(),
        launched_profile: LaunchedProfileDto::from_tags(tags),
        workspace: working_dir.map(|working_dir| ConversationWorkspaceDto { working_dir }),
    };
    (view.conversation, surroundings)
}

/// The state of the agent, where the sandbox can tell it.
fn known_status(sandbox: SandboxStatus, agent: Option<ExecutionStatus>) -> Option<ExecutionStatus> {
    let is_known = matches!(sandbox, SandboxStatus::Running | SandboxStatus::Paused);
    agent.filter(|_| is_known)
}

/// The response of `GET /app-conversations`: with `ids` the requested conversations, otherwise a page of all.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ListedConversations {
    /// In the requested order, with `null` for unknown ones.
    Batch(Vec<Option<ConversationDto>>),
    /// In the requested order.
    Page(PageDto<ConversationDto>),
}

/// The filter of a search.
#[model(query, into_default = ConversationFilter)]
pub(crate) struct ConversationFilterQuery {
    /// A part of the title, case-insensitive.
    #[decode(rename = "title__contains")]
    title_contains: Option<String>,
    #[decode(rename = "created_at__gte")]
    created_from: Option<Timestamp>,
    /// Created before this time.
    #[decode(rename = "created_at__lt")]
    created_before: Option<Timestamp>,
    /// Changed at or after this time.
    #[decode(rename = "updated_at__gte")]
    updated_from: Option<Timestamp>,
    /// Changed before this time.
    #[decode(rename = "updated_at__lt")]
    updated_before: Option<Timestamp>,
    /// Only conversations in this sandbox.
    #[decode(rename = "sandbox_id__eq")]
    #[into(skip)]
    sandbox: Option<String>,
}

/// Which conversations a list includes.
#[model(query)]
pub(crate) struct IncludedPartsQuery {
    #[decode(default = false)]
    include_sub_conversations: bool,
}

/// The order of a list of conversations.
#[model(query)]
pub(crate) struct ConversationOrderQuery {
    #[decode(rename = "sort_order", default)]
    #[param(inline)]
    order: ConversationOrder,
}

/// The query for counting conversations.
#[model]
#[derive(Debug)]
pub(crate) struct ConversationCountQuery {
    #[decode(flatten)]
    filter: ConversationFilterQuery,
    #[decode(flatten)]
    parts: IncludedPartsQuery,
}

/// The query for searching conversations.
#[model]
#[derive(Debug)]
pub(crate) struct ConversationSearchQuery {
    #[decode(flatten)]
    filter: ConversationFilterQuery,
    #[decode(flatten)]
    order: ConversationOrderQuery,
    #[decode(flatten)]
    page: PageQuery,
    #[decode(flatten)]
    parts: IncludedPartsQuery,
}

impl ConversationCountQuery {
    /// The filter; `None` if nothing can match, because the sandbox id is invalid.
    pub(crate) fn into_filter(self) -> Option<ConversationFilter> {
        let Self { mut filter, parts } = self;
        let sandbox = filter.sandbox.take();
        Some(ConversationFilter {
            sandbox_id: sandbox.map(SandboxId::parse).transpose().ok()?,
            include_sub_conversations: parts.include_sub_conversations,
            ..filter.into()
        })
    }
}

impl ConversationSearchQuery {
    /// Filter and page; the filter is as that of [`ConversationCountQuery`].
    pub(crate) fn into_parts(self) -> (Option<ConversationFilter>, PageRequest) {
        let Self {
            filter,
            order: ConversationOrderQuery { order },
            page,
            parts,
        } = self;
        let filter = ConversationCountQuery { filter, parts }.into_filter();
        let filter = filter.map(|filter| ConversationFilter { order, ..filter });
        (filter, page.into())
    }
}

/// The parameter that turns the list into a batch read.
#[model(query)]
pub(crate) struct BatchQuery {
    /// Load these conversations (at most 99) and ignore all other parameters.
    #[param(required = false)]
    pub ids: Vec<String>,
}

/// The query of the route that is both list and batch read.
#[derive(Debug)]
pub(crate) enum ConversationListQuery {
    /// Load the conversations with these ids, unparsed.
    Batch(BatchQuery),
    /// A search.
    Search(ConversationSearchQuery),
}

/// By hand: the alternative depends on a parameter.
impl Decode for ConversationListQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if value.get("ids").is_some() {
            BatchQuery::decode(value, at, errors).map(Self::Batch)
        } else {
            ConversationSearchQuery::decode(value, at, errors).map(Self::Search)
        }
    }
}

/// The id in a path as text, for routes with their own response to an invalid id.
#[model]
#[derive(Debug, Clone)]
pub(crate) struct ConversationIdText {
    pub conversation_id: String,
}

/// A change by the owner. Absent members keep their value; `null` clears.
#[model(body = AppConversationUpdateRequest, into = ConversationChange)]
pub(crate) struct ConversationUpdateDto {
    #[validate(length(max = 20_000))]
    title: Patch<String>,
    public: Patch<bool>,
    /// `owner/repo`, with groups in between where the provider has them.
    #[schema(
        pattern = "^\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*(/\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+$"
    )]
    selected_repository: Patch<String>,
    /// A valid git branch name.
    selected_branch: Patch<String>,
    git_provider: Patch<GitProvider>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::decode;

    #[test]
    fn long_titles_are_accepted_up_to_the_limit() {
        for (chars, is_taken) in [(20_000, true), (20_001, false)] {
            let body = json!({"title": "é".repeat(chars)});
            let update = decode::<ConversationUpdateDto>(&body, &Path::body(false));
            assert_eq!(update.is_ok(), is_taken, "{chars}");
        }
        let body = json!({"title": null});
        let cleared = decode::<ConversationUpdateDto>(&body, &Path::body(false));
        assert_eq!(cleared.unwrap().title, Patch::Clear);
    }
}
