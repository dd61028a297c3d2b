//! Which conversations may have news, and which observations change a row.

use domain::conversation::{
    Conversation, ConversationReport, ExecutionStatus, UnsettledConversation,
};

use crate::conversations::provisional_title;

/// Whether the agent server may have news without a report. A title comes without an event or a webhook, some time
/// after the first message, so the syncer looks for it until it exists or [`TITLE_TIMEOUT`](super::TITLE_TIMEOUT) has passed.
pub(super) fn may_change(it: &UnsettledConversation) -> bool {
    let untitled = it.title == Some(provisional_title(it.id));
    untitled
        || it
            .execution_status
            .is_none_or(|status| status == ExecutionStatus::Running)
}

/// Whether an observation changes the row, so that idle conversations are not written every few seconds.
pub(super) fn changes_row(conversation: &Conversation, seen: &ConversationReport) -> bool {
    let status = seen.execution_status.map(|(status, _)| status);
    (status.is_some() && status != conversation.execution_status)
        || seen
            .metrics
            .as_ref()
            .is_some_and(|m| *m != conversation.metrics)
        || (seen.llm_model.is_some() && seen.llm_model != conversation.llm_model)
        || (conversation.auto_title && seen.title.is_some() && seen.title != conversation.title)
        || seen
            .tags
            .iter()
            .any(|(k, v)| conversation.tags.get(k) != Some(v))
}
