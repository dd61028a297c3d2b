//! Conversations as front ends of the 1.0 to 1.3 line see them; see `docs/reference/wire/legacy.md`.

use application::conversations::provisional_title;
use application::sandboxes::SandboxService;
use domain::clock::Timestamp;
use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationView, ExecutionStatus,
    Trigger,
};
use domain::git::GitProvider;
use domain::id::{ConversationId, SandboxId};
use domain::page::{Page, PageLimit, PageRequest, PageToken};
use domain::sandbox::SandboxStatus;
use serde::Serialize;
use utoipa::ToSchema;

use crate::addresses::Addresses;
use crate::decode::{Patch, SaturatedInt, model};
use crate::dto::conversation::record::{ConversationSurroundings, split_view};
use crate::dto::secret_text::SecretText;

/// Longest id in a path.
const MAX_LEGACY_ID_CHARS: usize = 100;

/// State of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = ConversationStatus)]
pub(crate) enum LegacyStatus {
    /// Its sandbox is starting or resuming.
    Starting,
    /// Its sandbox is running.
    Running,
    /// Its sandbox is paused.
    Stopped,
    /// Its sandbox is deleted.
    Archived,
    /// Its sandbox failed.
    Error,
}

impl From<SandboxStatus> for LegacyStatus {
    fn from(sandbox: SandboxStatus) -> Self {
        match sandbox {
            SandboxStatus::Starting => Self::Starting,
            SandboxStatus::Running => Self::Running,
            SandboxStatus::Paused => Self::Stopped,
            SandboxStatus::Missing => Self::Archived,
            SandboxStatus::Error => Self::Error,
        }
    }
}

impl LegacyStatus {
    /// The runtime status of such a conversation, as a word that front ends can translate.
    fn runtime(self, agent: Option<ExecutionStatus>) -> Option<&'static str> {
        match (self, agent) {
            (Self::Starting, _) => Some("STATUS$STARTING_RUNTIME"),
            (Self::Error, _)
            | (Self::Running, Some(ExecutionStatus::Error | ExecutionStatus::Stuck)) => {
                Some("STATUS$ERROR")
            }
            (Self::Running, _) => Some("STATUS$READY"),
            (Self::Stopped, _) => Some("STATUS$STOPPED"),
            (Self::Archived, _) => None,
        }
    }
}

/// A conversation, as front ends of the 1.0 to 1.3 line see it.
#[model(response = ConversationInfo, from((conversation, around): (Conversation, ConversationSurroundings)))]
pub(crate) struct LegacyConversationDto {
    /// 32 hex digits.
    #[from(conversation.id)]
    conversation_id: ConversationId,
    #[from(conversation.title.unwrap_or_else(|| provisional_title(conversation.id)))]
    title: String,
    #[from(conversation.updated_at)]
    last_updated_at: Timestamp,
    #[from(around.sandbox_status.into())]
    status: LegacyStatus,
    #[from(LegacyStatus::from(around.sandbox_status).runtime(conversation.execution_status))]
    runtime_status: Option<&'static str>,
    selected_repository: Option<String>,
    selected_branch: Option<String>,
    git_provider: Option<GitProvider>,
    trigger: Option<Trigger>,
    /// Always 0: clients connect to agent servers.
    #[from(0)]
    num_connections: u32,
    /// Its URL at the agent server, while its sandbox is running.
    #[from(around.url)]
    url: Option<String>,
    #[from(around.session_key)]
    session_api_key: Option<SecretText>,
    created_at: Timestamp,
    #[from(conversation.pr_numbers)]
    pr_number: Vec<i64>,
    /// Always `V1`.
    #[from("V1")]
    conversation_version: &'static str,
    #[from(around.children)]
    sub_conversation_ids: Vec<ConversationId>,
    public: Option<bool>,
}

impl LegacyConversationDto {
    /// Converts a conversation for its owner.
    pub(crate) fn of(
        view: ConversationView,
        sandboxes: &SandboxService,
        addresses: &Addresses,
    ) -> Self {
        split_view(view, sandboxes, addresses).into()
    }
}

/// A page of conversations.
#[model(response = ConversationInfoResultSet)]
pub(crate) struct LegacyConversationsDto {
    /// Newest first.
    results: Vec<LegacyConversationDto>,
    next_page_id: Option<String>,
}

impl LegacyConversationsDto {
    pub(crate) const NONE: Self = Self {
        results: Vec::new(),
        next_page_id: None,
    };

    pub(crate) fn of(
        page: Page<ConversationView>,
        sandboxes: &SandboxService,
        addresses: &Addresses,
    ) -> Self {
        let page = page.map(|view| LegacyConversationDto::of(view, sandboxes, addresses));
        Self {
            results: page.items,
            next_page_id: page.next.map(|token| token.0),
        }
    }
}

/// The sandbox of a conversation.
#[model(response = RuntimeConfig)]
pub(crate) struct RuntimeConfigDto {
    /// Its sandbox.
    pub runtime_id: SandboxId,
    /// The conversation.
    pub session_id: ConversationId,
}

/// The response of a legacy route for an unknown conversation.
#[model(response = LegacyProblem)]
pub(crate) struct LegacyProblemDto {
    /// Always `error`.
    status: &'static str,
    message: &'static str,
    msg_id: &'static str,
}

impl LegacyProblemDto {
    pub(crate) const NOT_FOUND: Self = Self {
        status: "error",
        message: "Conversation not found",
        msg_id: "CONVERSATION$NOT_FOUND",
    };
}

/// The query for conversations.
#[model(query)]
pub(crate) struct LegacyListQuery {
    page_id: Option<PageToken>,
    /// Maximum number of conversations on the page. Above 100 it is 100; below 1 the page is empty.
    #[decode(default = SaturatedInt(20))]
    #[param(default = 20)]
    limit: SaturatedInt,
    /// Only conversations about this repository.
    selected_repository: Option<String>,
    /// Only conversations with this trigger.
    #[decode(rename = "conversation_trigger")]
    trigger: Option<Trigger>,
    #[decode(rename = "include_sub_conversations", default = false)]
    include_parts: bool,
}

impl LegacyListQuery {
    /// Filter and page; `None` for a limit below 1.
    pub(crate) fn into_parts(self) -> Option<(ConversationFilter, PageRequest)> {
        let filter = ConversationFilter {
            selected_repository: self.selected_repository,
            trigger: self.trigger,
            include_sub_conversations: self.include_parts,
            ..ConversationFilter::default()
        };
        let page = PageRequest {
            after: self.page_id,
            limit: PageLimit::new(self.limit.0.min(100))?,
        };
        Some((filter, page))
    }
}

/// An id in a path: the text and the conversation id, if it is one.
#[derive(Debug, Clone)]
pub(crate) struct LegacyId {
    /// The text as sent, of at most 100 characters and without path tricks.
    pub text: String,
    /// `None` for `task-…`, which front ends request during a start, and for any other text that is not an id.
    pub id: Option<ConversationId>,
}

impl LegacyId {
    /// Parses a text, or returns the error.
    pub(crate) fn parse(text: String) -> Result<Self, &'static str> {
        if text.chars().count() > MAX_LEGACY_ID_CHARS {
            return Err("Conversation ID is too long");
        }
        let is_odd = |c: char| c.is_control() || matches!(c, '/' | '\\');
        if text.contains("..") || text.contains(is_odd) {
            return Err("Conversation ID contains invalid path characters");
        }
        let id = text.parse().ok();
        Ok(Self { text, id })
    }
}

/// A new title.
#[model(body = UpdateConversationRequest, into_default = ConversationChange)]
pub(crate) struct LegacyTitleDto {
    #[validate(length(min = 1, max = 200))]
    #[into(Patch::Set(title))]
    title: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_map_to_legacy_words() {
        use ExecutionStatus as E;
        use SandboxStatus as S;
        for (sandbox, agent, status, runtime) in [
            (
                S::Starting,
                None,
                LegacyStatus::Starting,
                Some("STATUS$STARTING_RUNTIME"),
            ),
            (
                S::Running,
                None,
                LegacyStatus::Running,
                Some("STATUS$READY"),
            ),
            (
                S::Running,
                Some(E::Running),
                LegacyStatus::Running,
                Some("STATUS$READY"),
            ),
            (
                S::Running,
                Some(E::Finished),
                LegacyStatus::Running,
                Some("STATUS$READY"),
            ),
            (
                S::Running,
                Some(E::Stuck),
                LegacyStatus::Running,
                Some("STATUS$ERROR"),
            ),
            (
                S::Paused,
                Some(E::Paused),
                LegacyStatus::Stopped,
                Some("STATUS$STOPPED"),
            ),
            (
                S::Error,
                Some(E::Running),
                LegacyStatus::Error,
                Some("STATUS$ERROR"),
            ),
            (S::Missing, Some(E::Finished), LegacyStatus::Archived, None),
        ] {
            assert_eq!(LegacyStatus::from(sandbox), status);
            assert_eq!(status.runtime(agent), runtime, "{sandbox} {agent:?}");
        }
    }

    #[test]
    fn legacy_ids_are_validated() {
        let id = |text: &str| LegacyId::parse(text.to_owned()).map(|id| id.id.is_some());
        assert_eq!(id("0123456789abcdef0123456789abcdef"), Ok(true));
        assert_eq!(id("01234567-89ab-cdef-0123-456789abcdef"), Ok(true));
        assert_eq!(id("task-0123456789abcdef0123456789abcdef"), Ok(false));
        assert_eq!(id("anything"), Ok(false));
        assert!(id(&"x".repeat(101)).is_err());
        for odd in ["..", "a/b", "a\\b", "a\nb", "a..b"] {
            assert!(id(odd).is_err(), "{odd:?}");
        }
    }
}
