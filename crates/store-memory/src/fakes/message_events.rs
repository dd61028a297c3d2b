//! User messages in the log of the fake agent server.

use domain::clock::{Clock, SystemClock};
use domain::conversation::MessageInput;
use domain::event::Event;
use domain::id::EventId;
use serde_json::json;

/// The event of a user message.
pub(crate) fn user_message_event(number: usize, message: &MessageInput) -> Event {
    let now = SystemClock.now();
    let body = json!({
        "id": format!("message-{number}"), "kind": "MessageEvent", "source": "user", "timestamp": now,
        "llm_message": {"role": message.role, "content": message.content},
    });
    Event {
        id: EventId::parse(format!("message-{number}")).expect("valid event id"),
        kind: "MessageEvent".to_owned(),
        timestamp: now,
        body,
    }
}
