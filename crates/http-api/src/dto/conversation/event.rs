//! Queries for events of a conversation, and the kinds of events that they name. Events themselves are the agent server's documents and pass unchanged.

use application::event_streams::StreamPosition;
use domain::clock::Timestamp;
use domain::event::{EventFilter, EventOrder};
use domain::page::PageRequest;
use serde_json::Value;
use utoipa::ToSchema;

use crate::decode::{Choice, model};
use crate::dto::enums::choice;
use crate::dto::page::PageQuery;

// The agent server's words, in the order in which errors list them.
choice!(pub(crate) Literal EventKind, "A kind of event." {
    ServerErrorEvent = "ServerErrorEvent",
    ACPToolCallEvent = "ACPToolCallEvent",
    Condensation = "Condensation",
    CondensationRequest = "CondensationRequest",
    CondensationSummaryEvent = "CondensationSummaryEvent",
    ConversationErrorEvent = "ConversationErrorEvent",
    ConversationStateUpdateEvent = "ConversationStateUpdateEvent",
    HookExecutionEvent = "HookExecutionEvent",
    LLMCompletionLogEvent = "LLMCompletionLogEvent",
    ActionEvent = "ActionEvent",
    MessageEvent = "MessageEvent",
    AgentErrorEvent = "AgentErrorEvent",
    ObservationEvent = "ObservationEvent",
    UserRejectObservation = "UserRejectObservation",
    SystemPromptEvent = "SystemPromptEvent",
    StreamingDeltaEvent = "StreamingDeltaEvent",
    TokenEvent = "TokenEvent",
    InterruptEvent = "InterruptEvent",
    PauseEvent = "PauseEvent",
});

/// The query of an event stream: position and filter.
#[model(query)]
pub(crate) struct EventStreamQuery {
    #[decode(rename = "kind__eq")]
    #[param(inline)]
    kind: Option<EventKind>,
    /// Only events that arrive from now on. Without it, and without `last_event_id`, all stored events come first.
    #[param(inline)]
    from: Option<StreamFrom>,
    /// Like the header `Last-Event-ID`, which takes precedence: the `id` of the last received event; 0 for none.
    #[param(required = false, minimum = 0)]
    last_event_id: Option<u64>,
}

choice!(pub(crate) Literal StreamFrom, "Where a stream begins." {
    Now = "now",
});

impl EventStreamQuery {
    /// The start position, given the header, and the kind.
    pub(crate) fn into_parts(self, header: Option<u64>) -> (StreamPosition, Option<String>) {
        let begin = match (header.or(self.last_event_id), self.from) {
            (Some(seq), _) => StreamPosition::After(seq),
            (None, Some(StreamFrom::Now)) => StreamPosition::Now,
            (None, None) => StreamPosition::First,
        };
        (begin, self.kind.map(|kind| kind.word().to_owned()))
    }
}

/// The query for counting events.
#[model(query, into = EventFilter)]
pub(crate) struct EventCountQuery {
    #[decode(rename = "kind__eq")]
    #[param(inline)]
    #[into(kind.map(|kind| kind.word().to_owned()))]
    kind: Option<EventKind>,
    /// Only events at or after this time.
    #[decode(rename = "timestamp__gte")]
    from: Option<Timestamp>,
    /// Only events before this time.
    #[decode(rename = "timestamp__lt")]
    before: Option<Timestamp>,
}

/// The query for searching events, in addition to [`EventCountQuery`] and [`PageQuery`].
#[model(query)]
pub(crate) struct EventSearchQuery {
    #[decode(flatten)]
    filter: EventCountQuery,
    #[decode(rename = "sort_order", default)]
    #[param(inline)]
    order: EventOrder,
    #[decode(flatten)]
    page: PageQuery,
}

impl EventSearchQuery {
    pub(crate) fn into_parts(self) -> (EventFilter, EventOrder, PageRequest) {
        (self.filter.into(), self.order, self.page.into())
    }
}

/// An event: the agent server's document. It has further members, depending on `kind`.
#[derive(Debug, ToSchema)]
#[schema(as = Event)]
#[expect(
    dead_code,
    reason = "for the document only: events are answered as they came"
)]
pub(crate) struct EventDocument {
    /// Unique in its conversation.
    id: String,
    /// The kind of event.
    kind: Option<Value>,
    /// The time of the event, in the agent server's format.
    timestamp: Option<Value>,
}
