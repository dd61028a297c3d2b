//! Conversations on the wire; see `docs/reference/wire/conversations.md`.

mod json;

use std::collections::BTreeMap;

use application::sandboxes::SandboxService;
use domain::clock::Timestamp;
use domain::conversation::{
    ConversationChange, ConversationFilter, ConversationView, ExecutionStatus, GitProvider,
    Metrics, Trigger,
};
use domain::id::{ConversationId, SandboxId, UserId};
use domain::page::{PageLimit, PageRequest};
use domain::patch::Patch;
use domain::sandbox::SandboxStatus;
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::addresses::Addresses;
use crate::decode::{Decode, FieldErrors, Object, Path, characters};
use crate::dto::enums::{
    ExecutionStatusSchema, GitProviderSchema, SandboxStatusSchema, TriggerSchema,
};
use crate::dto::secret_text::SecretText;
use crate::dto::{MAX_TITLE_CHARS, PageDto};

/// A conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AppConversation)]
pub struct ConversationDto {
    /// 32 hex digits.
    #[schema(value_type = String)]
    id: ConversationId,
    /// The owner.
    #[schema(value_type = Option<String>, required)]
    created_by_user_id: UserId,
    /// The sandbox that it runs in.
    #[schema(value_type = String)]
    sandbox_id: SandboxId,
    #[schema(required)]
    selected_repository: Option<String>,
    #[schema(required)]
    selected_branch: Option<String>,
    #[schema(value_type = Option<GitProviderSchema>, required)]
    git_provider: Option<GitProvider>,
    #[schema(required)]
    title: Option<String>,
    #[schema(value_type = Option<TriggerSchema>, required)]
    trigger: Option<Trigger>,
    /// Numbers of the pull requests that it concerns.
    pr_number: Vec<i64>,
    #[schema(required)]
    llm_model: Option<String>,
    /// `openhands` or `acp`.
    agent_kind: String,
    metrics: MetricsDto,
    /// The conversation that this one is a part of.
    #[schema(value_type = Option<String>, required)]
    parent_conversation_id: Option<ConversationId>,
    /// Its parts, oldest first.
    #[schema(value_type = Vec<String>)]
    sub_conversation_ids: Vec<ConversationId>,
    #[schema(required)]
    public: Option<bool>,
    tags: BTreeMap<String, String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// MISSING if the sandbox is deleted.
    #[schema(value_type = SandboxStatusSchema)]
    sandbox_status: SandboxStatus,
    /// The state of the agent; `null` if unknown.
    #[schema(value_type = Option<ExecutionStatusSchema>, required)]
    execution_status: Option<ExecutionStatus>,
    /// Its URL at the agent server, while the sandbox is RUNNING.
    #[schema(required)]
    conversation_url: Option<String>,
    /// The key of the agent server, while the sandbox is RUNNING.
    #[schema(value_type = Option<String>, required)]
    session_api_key: Option<SecretText>,
    /// The agent behind an `acp` conversation.
    #[schema(required)]
    acp_server: Option<String>,
    #[schema(required)]
    launched_agent_profile: Option<LaunchedProfileDto>,
}

/// Cost and tokens so far.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = MetricsSnapshot)]
pub struct MetricsDto {
    /// Always `default`: the totals are over all models.
    model_name: &'static str,
    /// US dollars.
    accumulated_cost: f64,
    /// US dollars.
    #[schema(required)]
    max_budget_per_task: Option<f64>,
    accumulated_token_usage: TokenUsageDto,
}

/// Tokens so far.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TokenUsage)]
pub struct TokenUsageDto {
    /// Always empty: the totals are over all models.
    model: &'static str,
    prompt_tokens: i64,
    completion_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    context_window: i64,
    per_turn_token: i64,
    /// Always empty: the totals are over all responses.
    response_id: &'static str,
}

/// The agent profile that a conversation was started with.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LaunchedAgentProfile)]
pub struct LaunchedProfileDto {
    agent_profile_id: Uuid,
    revision: i64,
}

impl From<Metrics> for MetricsDto {
    fn from(metrics: Metrics) -> Self {
        Self {
            model_name: "default",
            accumulated_cost: metrics.accumulated_cost,
            max_budget_per_task: metrics.max_budget_per_task,
            accumulated_token_usage: TokenUsageDto {
                model: "",
                prompt_tokens: metrics.prompt_tokens,
                completion_tokens: metrics.completion_tokens,
                cache_read_tokens: metrics.cache_read_tokens,
                cache_write_tokens: metrics.cache_write_tokens,
                reasoning_tokens: metrics.reasoning_tokens,
                context_window: metrics.context_window,
                per_turn_token: metrics.per_turn_token,
                response_id: "",
            },
        }
    }
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
    pub fn of(view: ConversationView, sandboxes: &SandboxService, addresses: &Addresses) -> Self {
        let ConversationView {
            conversation,
            sandbox,
            children,
        } = view;
        let status = sandbox
            .as_ref()
            .map_or(SandboxStatus::Missing, |sandbox| sandbox.status);
        let known = matches!(status, SandboxStatus::Running | SandboxStatus::Paused);
        let url = sandbox.as_ref().and_then(|it| addresses.agent_server(it));
        let url = url.map(|url| {
            [
                url,
                "/api/conversations/",
                conversation.id.hex(&mut [0; 32]),
            ]
            .concat()
        });
        let acp = conversation.agent_kind == "acp";
        Self {
            created_by_user_id: conversation.owner,
            sandbox_id: conversation.sandbox_id,
            selected_repository: conversation.selected_repository,
            selected_branch: conversation.selected_branch,
            git_provider: conversation.git_provider,
            title: conversation.title,
            trigger: conversation.trigger,
            pr_number: conversation.pr_numbers,
            llm_model: conversation.llm_model,
            agent_kind: conversation.agent_kind,
            metrics: conversation.metrics.into(),
            parent_conversation_id: conversation.parent,
            sub_conversation_ids: children,
            public: conversation.public,
            acp_server: conversation.tags.get("acpserver").filter(|_| acp).cloned(),
            launched_agent_profile: LaunchedProfileDto::from_tags(&conversation.tags),
            tags: conversation.tags,
            created_at: conversation.created_at,
            updated_at: conversation.updated_at,
            sandbox_status: status,
            execution_status: conversation.execution_status.filter(|_| known),
            conversation_url: url,
            session_api_key: sandbox
                .and_then(|sandbox| sandboxes.session_key(&sandbox))
                .map(SecretText::from),
            id: conversation.id,
        }
    }
}

/// The response of `GET /app-conversations`: with `ids` the requested conversations, otherwise a page of all.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ListedConversations {
    /// In the requested order, with `null` for unknown ones.
    Batch(Vec<Option<ConversationDto>>),
    /// Newest first.
    Page(PageDto<ConversationDto>),
}

/// The query for counting conversations.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ConversationCountQuery {
    /// A part of the title, case-insensitive.
    #[param(rename = "title__contains", nullable = false)]
    title_contains: Option<String>,
    /// Created at or after this time.
    #[param(rename = "created_at__gte", value_type = String, format = DateTime, required = false)]
    created_from: Option<Timestamp>,
    /// Created before this time.
    #[param(rename = "created_at__lt", value_type = String, format = DateTime, required = false)]
    created_before: Option<Timestamp>,
    /// Changed at or after this time.
    #[param(rename = "updated_at__gte", value_type = String, format = DateTime, required = false)]
    updated_from: Option<Timestamp>,
    /// Changed before this time.
    #[param(rename = "updated_at__lt", value_type = String, format = DateTime, required = false)]
    updated_before: Option<Timestamp>,
    /// Only conversations in this sandbox.
    #[param(rename = "sandbox_id__eq", nullable = false)]
    sandbox: Option<String>,
    /// Whether to include parts of other conversations.
    #[param(rename = "include_sub_conversations", value_type = bool, required = false, default = false)]
    include_parts: bool,
}

impl ConversationCountQuery {
    /// Reads all members except `include_sub_conversations`, whose errors come after those of the page.
    fn read<Model: Decode>(object: &mut Object<'_, Model>) -> Option<Self> {
        let title_contains = object.optional("title__contains");
        let created_from = object.optional("created_at__gte");
        let created_before = object.optional("created_at__lt");
        let updated_from = object.optional("updated_at__gte");
        let updated_before = object.optional("updated_at__lt");
        let sandbox = object.optional("sandbox_id__eq");
        Some(Self {
            title_contains: title_contains?,
            created_from: created_from?,
            created_before: created_before?,
            updated_from: updated_from?,
            updated_before: updated_before?,
            sandbox: sandbox?,
            include_parts: false,
        })
    }

    /// The filter; `None` if nothing can match, because the sandbox id is invalid.
    pub fn into_filter(self) -> Option<ConversationFilter> {
        let sandbox_id = self.sandbox.map(SandboxId::parse).transpose().ok()?;
        Some(ConversationFilter {
            title_contains: self.title_contains,
            created_from: self.created_from,
            created_before: self.created_before,
            updated_from: self.updated_from,
            updated_before: self.updated_before,
            sandbox_id,
            include_sub_conversations: self.include_parts,
            ..ConversationFilter::default()
        })
    }
}

impl Decode for ConversationCountQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let what = Self::read(&mut object);
        let include_parts = include_parts(&mut object);
        Some(Self {
            include_parts: include_parts?,
            ..what?
        })
    }
}

fn include_parts<Model: Decode>(object: &mut Object<'_, Model>) -> Option<bool> {
    object.default("include_sub_conversations", || false)
}

/// The query for searching conversations.
#[derive(Debug, Clone)]
pub struct ConversationSearchQuery {
    /// The filter.
    pub what: ConversationCountQuery,
    /// The page.
    pub page: PageRequest,
}

impl Decode for ConversationSearchQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let what = ConversationCountQuery::read(&mut object);
        let page = object.page(PageLimit::MAX);
        let include_parts = include_parts(&mut object);
        Some(Self {
            what: ConversationCountQuery {
                include_parts: include_parts?,
                ..what?
            },
            page: page?,
        })
    }
}

/// The query of the route that is both list and batch read.
#[derive(Debug, Clone)]
pub enum ConversationListQuery {
    /// Load the conversations with these ids, unparsed.
    Batch(Vec<String>),
    /// A search.
    Search(ConversationSearchQuery),
}

impl Decode for ConversationListQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        if object.has("ids") {
            return object.required("ids").map(Self::Batch);
        }
        ConversationSearchQuery::decode(value, at, errors).map(Self::Search)
    }
}

/// The parameter that turns the list into a batch read.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "for the document only; see `ConversationListQuery`"
)]
pub struct BatchParams {
    /// Load these conversations (at most 99) and ignore all other parameters.
    #[param(required = false)]
    ids: Vec<String>,
}

/// The decoded body of a change.
#[derive(Debug, Clone)]
pub struct ConversationPatch(pub ConversationChange);

impl Decode for ConversationPatch {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let title = object.patch::<String>("title");
        if let Some(Patch::Set(title)) = &title {
            object.rule("title", Some(title), characters(..=MAX_TITLE_CHARS));
        }
        let public = object.patch("public");
        let selected_repository = object.patch("selected_repository");
        let selected_branch = object.patch("selected_branch");
        let git_provider = object.patch("git_provider");
        Some(Self(ConversationChange {
            title: title?,
            public: public?,
            selected_repository: selected_repository?,
            selected_branch: selected_branch?,
            git_provider: git_provider?,
        }))
    }
}

/// A change by the owner. Absent members keep their value; `null` clears.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `ConversationPatch`")]
pub struct AppConversationUpdateRequest {
    #[schema(max_length = 20_000)]
    title: Option<String>,
    public: Option<bool>,
    /// `owner/repo`, with groups in between where the provider has them.
    #[schema(
        pattern = "^\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*(/\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+$"
    )]
    selected_repository: Option<String>,
    /// A valid git branch name.
    selected_branch: Option<String>,
    #[schema(value_type = Option<GitProviderSchema>)]
    git_provider: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::decode;

    #[test]
    fn long_titles_are_accepted_up_to_the_limit() {
        let most = usize::try_from(MAX_TITLE_CHARS).unwrap();
        for (chars, is_taken) in [(most, true), (most + 1, false)] {
            let body = json!({"title": "é".repeat(chars)});
            let patch = decode::<ConversationPatch>(&body, &Path::body(false));
            assert_eq!(patch.is_ok(), is_taken, "{chars}");
        }
        let cleared = decode::<ConversationPatch>(&json!({"title": null}), &Path::body(false));
        assert_eq!(cleared.unwrap().0.title, Patch::Clear);
    }
}
