//! Formats an event on one line.

use client::Event;
use serde_json::Value;

use super::output::plain;

const MAX_LINE_CHARS: usize = 200;

/// Time, source and content.
pub(super) fn summarize(event: &Event) -> String {
    // `2026-01-31T12:00:00.123456`: the time of day.
    let time = event.timestamp().get(11..19).unwrap_or_default();
    let source = event.member("source").as_str().unwrap_or_default();
    let kind = event.kind().trim_end_matches("Event");
    let head = format!("{time:8}  {:11}  {:12}", plain(source, 11), plain(kind, 24));
    format!("{head}  {}", plain(&details(event), MAX_LINE_CHARS))
        .trim_end()
        .to_owned()
}

fn details(event: &Event) -> String {
    let text = |name: &str| event.member(name).as_str().unwrap_or_default().to_owned();
    match event.kind() {
        "MessageEvent" => content(&event.member("llm_message")["content"]),
        "ActionEvent" => {
            let summary = [text("summary"), content(event.member("thought"))];
            let summary = summary.into_iter().find(|text| !text.is_empty());
            let action = event.member("action");
            let command = ["command", "path", "message"]
                .into_iter()
                .find_map(|name| action[name].as_str());
            let text_or_command = summary.unwrap_or_else(|| command.unwrap_or_default().to_owned());
            format!("{} {text_or_command}", text("tool_name"))
        }
        "ObservationEvent" => {
            let observed = content(&event.member("observation")["content"]);
            format!("{} {observed}", text("tool_name"))
        }
        "ConversationStateUpdateEvent" => match event.member("value") {
            Value::String(value) => format!("{}: {value}", text("key")),
            _ => text("key"),
        },
        _ => {
            let texts = ["error", "detail", "message", "reason", "code"].map(text);
            texts
                .into_iter()
                .find(|text| !text.is_empty())
                .unwrap_or_default()
        }
    }
}

fn content(parts: &Value) -> String {
    let parts = parts.as_array().into_iter().flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_summarized_on_one_line() {
        for (event, summary) in [
            (
                json!({"id": "1", "kind": "MessageEvent", "source": "user", "timestamp": "2026-01-31T12:00:05.1",
                    "llm_message": {"content": [{"type": "text", "text": "hello\nyou"}]}}),
                "12:00:05  user         Message       hello you",
            ),
            (
                json!({"id": "2", "kind": "ActionEvent", "source": "agent", "tool_name": "terminal",
                    "action": {"command": "ls"}}),
                "          agent        Action        terminal ls",
            ),
            (
                json!({"id": "3", "kind": "ConversationStateUpdateEvent", "source": "environment",
                    "key": "execution_status", "value": "finished"}),
                "          environment  ConversationStateUpdate  execution_status: finished",
            ),
            (json!({"id": "4", "kind": 7}), ""),
        ] {
            let event: Event = serde_json::from_value(event).unwrap();
            assert_eq!(summarize(&event), summary);
        }
    }
}
