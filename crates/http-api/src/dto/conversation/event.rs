//! Queries for events of a conversation. Events themselves are the agent server's documents and pass unchanged.

use application::event_streams::StreamPosition;
use domain::clock::Timestamp;
use domain::event::{EventFilter, EventOrder};
use domain::page::{PageLimit, PageRequest, PageToken};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::decode::{Choice, ChoiceKind, Decode, FieldErrors, Object, Path};

/// A kind of event, as a filter.
#[derive(Debug, Clone, Copy)]
pub struct EventKind(&'static str);

macro_rules! kinds {
    ($($name:ident)*) => {
        impl Choice for EventKind {
            const KIND: ChoiceKind = ChoiceKind::Literal;
            const CHOICES: &'static [(&'static str, Self)] = &[$((stringify!($name), Self(stringify!($name))),)*];
        }

        /// The kinds, for the document.
        #[derive(Debug, Clone, Copy, ToSchema)]
        #[schema(as = EventKind)]
        #[expect(missing_docs, reason = "the agent server's words, in the order in which refusals list them")]
        pub enum EventKindSchema { $($name,)* }
    };
}

kinds! {
    ServerErrorEvent ACPToolCallEvent Condensation CondensationRequest CondensationSummaryEvent
    ConversationErrorEvent ConversationStateUpdateEvent HookExecutionEvent LLMCompletionLogEvent ActionEvent
    MessageEvent AgentErrorEvent ObservationEvent UserRejectObservation SystemPromptEvent StreamingDeltaEvent
    TokenEvent InterruptEvent PauseEvent
}

/// The query of an event stream: position and filter.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventStreamQuery {
    /// Only events of this kind.
    #[param(rename = "kind__eq", value_type = EventKindSchema, inline, required = false)]
    kind: Option<EventKind>,
    /// Only events that arrive from now on. Without it, and without `last_event_id`, all stored events come first.
    #[param(rename = "from", value_type = StreamFromSchema, inline, required = false)]
    from: Option<StreamFromNow>,
    /// Like the header `Last-Event-ID`, which takes precedence: the `id` of the last received event; 0 for none.
    #[param(required = false, minimum = 0)]
    last_event_id: Option<u64>,
}

/// `now`
#[derive(Debug, Clone, Copy)]
struct StreamFromNow;

impl Choice for StreamFromNow {
    const KIND: ChoiceKind = ChoiceKind::Literal;
    const CHOICES: &'static [(&'static str, Self)] = &[("now", Self)];
}

/// The word, for the document.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(as = StreamFrom, rename_all = "lowercase")]
pub enum StreamFromSchema {
    /// After the stored events.
    Now,
}

impl Decode for EventStreamQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let kind = object.optional("kind__eq");
        let from = object.optional("from");
        let last_event_id = object.optional("last_event_id");
        Some(Self {
            kind: kind?,
            from: from?,
            last_event_id: last_event_id?,
        })
    }
}

impl EventStreamQuery {
    /// The start position, given the header, and the kind.
    pub fn into_parts(self, header: Option<u64>) -> (StreamPosition, Option<String>) {
        let begin = match (header.or(self.last_event_id), self.from) {
            (Some(seq), _) => StreamPosition::After(seq),
            (None, Some(StreamFromNow)) => StreamPosition::Now,
            (None, None) => StreamPosition::First,
        };
        (begin, self.kind.map(|kind| kind.0.to_owned()))
    }
}

impl Choice for EventOrder {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("TIMESTAMP", Self::Timestamp),
        ("TIMESTAMP_DESC", Self::TimestampDesc),
    ];
}

/// The orders, for the document.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(as = EventSortOrder, rename_all = "SCREAMING_SNAKE_CASE", default = "TIMESTAMP")]
pub enum EventOrderSchema {
    /// Oldest first.
    Timestamp,
    /// Newest first.
    TimestampDesc,
}

/// The query for counting events.
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventCountQuery {
    /// Only events of this kind.
    #[param(rename = "kind__eq", value_type = EventKindSchema, inline, required = false)]
    kind: Option<EventKind>,
    /// Only events at or after this time.
    #[param(rename = "timestamp__gte", value_type = String, format = DateTime, required = false)]
    from: Option<Timestamp>,
    /// Only events before this time.
    #[param(rename = "timestamp__lt", value_type = String, format = DateTime, required = false)]
    before: Option<Timestamp>,
}

impl EventCountQuery {
    fn read<Model: Decode>(object: &mut Object<'_, Model>) -> Option<Self> {
        let kind = object.optional("kind__eq");
        let from = object.optional("timestamp__gte");
        let before = object.optional("timestamp__lt");
        Some(Self {
            kind: kind?,
            from: from?,
            before: before?,
        })
    }
}

impl Decode for EventCountQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        Self::read(&mut object)
    }
}

impl From<EventCountQuery> for EventFilter {
    fn from(query: EventCountQuery) -> Self {
        Self {
            kind: query.kind.map(|kind| kind.0.to_owned()),
            from: query.from,
            before: query.before,
        }
    }
}

/// The query for searching events, in addition to [`EventCountQuery`].
#[derive(Debug, Clone, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventSearchQuery {
    #[param(ignore)]
    what: EventCountQuery,
    /// Order.
    #[param(rename = "sort_order", value_type = EventOrderSchema, inline, required = false)]
    order: EventOrder,
    /// `next_page_id` of the previous page.
    #[param(value_type = String, required = false)]
    page_id: Option<PageToken>,
    /// Maximum number of items on the page.
    #[param(value_type = i64, required = false, minimum = 1, maximum = 100, default = 100)]
    limit: PageLimit,
}

impl EventSearchQuery {
    /// Filter, order and page.
    pub fn into_parts(self) -> (EventFilter, EventOrder, PageRequest) {
        let page = PageRequest {
            after: self.page_id,
            limit: self.limit,
        };
        (self.what.into(), self.order, page)
    }
}

impl Decode for EventSearchQuery {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let what = EventCountQuery::read(&mut object);
        let order = object.default("sort_order", EventOrder::default);
        let page = object.page(PageLimit::MAX);
        let PageRequest { after, limit } = page?;
        Some(Self {
            what: what?,
            order: order?,
            page_id: after,
            limit,
        })
    }
}

/// An event: the agent server's document. It has further members, depending on `kind`.
#[derive(Debug, ToSchema)]
#[schema(as = Event)]
#[expect(
    dead_code,
    reason = "for the document only: events are answered as they came"
)]
pub struct EventDocument {
    /// Unique in its conversation.
    id: String,
    /// The kind of event.
    kind: Option<Value>,
    /// The time of the event, in the agent server's format.
    timestamp: Option<Value>,
}
