//! How agent servers treat a message: final refusals, and its event in the log.

use domain::agent::AgentError;
use domain::conversation::MessageInput;
use domain::event::Event;
use serde_json::Value;

/// Whether the agent server will never take this message: it refuses the content, not the time or the caller.
pub(super) fn is_permanent_refusal(error: &AgentError) -> bool {
    let AgentError::Rejected { status, .. } = error else {
        return false;
    };
    (400..500).contains(status) && !matches!(status, 401 | 403 | 404 | 408 | 409 | 429)
}

pub(super) fn is_event_of(event: &Event, message: &MessageInput) -> bool {
    let llm_message = &event.body["llm_message"];
    let Some(content) = llm_message["content"].as_array() else {
        return false;
    };
    event.kind == "MessageEvent"
        && event.body["source"] == "user"
        && llm_message["role"] == message.role.as_str()
        && content.len() == message.content.len()
        && content
            .iter()
            .zip(&message.content)
            .all(|(one, other)| comparable_content(one) == comparable_content(other))
}

/// The content of an item, without the fields that agent servers add.
fn comparable_content(item: &Value) -> (&Value, &Value) {
    (&item["text"], &item["image_urls"])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::clock::Timestamp;
    use serde_json::json;

    use super::*;

    fn event(source: &str, role: &str, content: &Value) -> Event {
        let body = json!({
            "id": "1", "kind": "MessageEvent", "source": source,
            "llm_message": {"role": role, "content": content},
        });
        Event::from_document(body, Timestamp::from_micros(7)).expect("readable")
    }

    #[test]
    fn a_message_is_matched_by_its_content() {
        let message = MessageInput {
            role: "user".to_owned(),
            content: vec![
                json!({"cache_prompt": false, "type": "text", "text": "é"}),
                json!({"type": "image", "image_urls": ["https://a"]}),
            ],
            run: true,
        };
        let text = json!({"type": "text", "text": "é", "cache_prompt": true, "new": 1});
        let image = json!({"type": "image", "image_urls": ["https://a"]});
        let same = json!([text, image]);
        assert!(is_event_of(&event("user", "user", &same), &message));
        for (source, role, content) in [
            ("agent", "user", &same),
            ("user", "assistant", &same),
            ("user", "user", &json!([text])),
            ("user", "user", &json!([image, text])),
            (
                "user",
                "user",
                &json!([{"type": "text", "text": "e"}, image]),
            ),
            ("user", "user", &json!("é")),
        ] {
            assert!(
                !is_event_of(&event(source, role, content), &message),
                "{content}"
            );
        }
    }

    #[test]
    fn only_a_refusal_of_the_message_itself_is_final() {
        let rejected = |status| AgentError::Rejected {
            status,
            reason: String::new(),
        };
        for status in [400, 413, 422] {
            assert!(is_permanent_refusal(&rejected(status)), "{status}");
        }
        for status in [401, 403, 404, 408, 409, 429, 500, 503] {
            assert!(!is_permanent_refusal(&rejected(status)), "{status}");
        }
        assert!(!is_permanent_refusal(&AgentError::NotFound));
        assert!(!is_permanent_refusal(&AgentError::TimedOut(Duration::ZERO)));
    }
}
