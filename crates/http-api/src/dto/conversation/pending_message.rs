//! Pending messages on the wire. The reference parses these bodies by hand, so all errors are 400 with a text; see
//! `docs/reference/wire/pending-messages.md`.

use application::pending::QueuedMessage;
use domain::conversation::MessageInput;
use domain::conversation::pending::MessageTarget;
use domain::id::{ConversationId, StartTaskId};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::decode::{Decode, DecodeScalar, FieldError, FieldErrors, JsonError, Path, model};
use crate::dto::conversation::message::{MessageContent, content_values};
use crate::extract::NamedParam;
use crate::problem::Problem;

/// The target in a path: a conversation, or its start task as `task-<id>`, in any spelling of a UUID.
#[derive(Debug, Clone)]
pub(crate) struct PendingTargetParam(pub String);

/// Written by hand, because the handler parses the text and answers 404 to an invalid one.
impl DecodeScalar for PendingTargetParam {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        String::parse(value).map(Self)
    }
}

impl NamedParam for PendingTargetParam {
    const NAME: &'static str = "conversation_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

impl PendingTargetParam {
    /// Parses the target; 404 if it is invalid.
    pub(crate) fn read(&self) -> Result<MessageTarget, Problem> {
        let task = self.0.strip_prefix("task-");
        let task = task.map(|id| id.parse::<StartTaskId>().map(MessageTarget::Task));
        let parsed = task.unwrap_or_else(|| {
            let id = self.0.parse::<ConversationId>();
            id.map(MessageTarget::Conversation)
        });
        parsed.map_err(|_| Problem::missing("Conversation not found"))
    }
}

const INVALID_BODY: &str = "Invalid request body";

/// Decodes a body. All errors are 400.
pub(crate) fn message(body: Result<Value, JsonError>) -> Result<MessageInput, Problem> {
    let refused = |text: &str| Err(Problem::bad_request(text));
    let Ok(Value::Object(body)) = body else {
        return refused(INVALID_BODY);
    };
    let content = match body.get("content") {
        Some(content @ Value::Array(items)) if !items.is_empty() => content,
        _ => return refused("content must be a non-empty list"),
    };
    let content = items(content)?;
    match body.get("role") {
        // Agent servers accept no other role, so others could never be delivered.
        None => {}
        Some(Value::String(role)) if role == "user" => {}
        Some(Value::String(_)) => {
            return refused("role must be user: agents accept no other role");
        }
        Some(_) => return refused("role must be a string"),
    }
    Ok(MessageInput {
        role: "user".to_owned(),
        content,
        run: true,
    })
}

fn items(content: &Value) -> Result<Vec<Value>, Problem> {
    let mut errors = FieldErrors::new();
    let decoded = Vec::<MessageContent>::decode(content, &Path::body(false), &mut errors);
    if let (Some(content), true) = (decoded, errors.is_empty()) {
        return Ok(content_values(&content));
    }
    let count = errors.len();
    let mut text = format!("Invalid content format: {count} validation errors");
    for (place, what) in errors.texts() {
        text = format!("{text}\n{place}\n  {what}");
    }
    Err(Problem::bad_request(text))
}

/// A message to store until its conversation can receive it.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `message`")]
pub(crate) struct PendingMessageRequest {
    #[schema(min_items = 1)]
    content: Vec<MessageContent>,
    #[schema(required = false, pattern = "^user$", default = "user")]
    role: String,
}

/// The message is pending.
#[model(response, from(placed: QueuedMessage))]
pub(crate) struct PendingMessageResponse {
    id: Uuid,
    /// Always `true`.
    #[from(true)]
    queued: bool,
    /// Number of pending messages, including this one.
    #[schema(minimum = 1, maximum = 10)]
    position: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_in_every_spelling() {
        let hex = "bd149714357048a29bd54ec68782c6d8";
        let dashed = "BD149714-3570-48A2-9BD5-4EC68782C6D8";
        let read = |text: &str| PendingTargetParam(text.to_owned()).read().ok();
        let task = Some(MessageTarget::Task(hex.parse().unwrap()));
        let conversation = Some(MessageTarget::Conversation(hex.parse().unwrap()));
        for id in [hex, dashed] {
            assert_eq!(read(id), conversation);
            assert_eq!(read(&format!("task-{id}")), task);
        }
        for text in ["", "task-", "task-x", "Task-0", "task-task-", "x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
