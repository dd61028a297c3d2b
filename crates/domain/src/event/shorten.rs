//! The short form of an event whose document takes too much of its owner's quota.
//!
//! Clients parse events by schemas that forbid fields that they do not know. So a short form has the fields of the
//! original, and only its long texts are cut: an observation that loses what a tool printed is still an observation.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Event;

/// The kind of the events that are shortened after they were stored: what tools printed.
pub const BULKY_EVENT_KIND: &str = "ObservationEvent";

/// A document of more bytes than this is bulky. A shortened one is not.
pub const BULKY_EVENT_BYTES: usize = 16 * 1024;

/// Characters that are left of a text, in the first attempt and in the second one.
const KEPT_CHARS: [usize; 2] = [1_000, 100];

/// Items that are left of a list in the second attempt.
const KEPT_ITEMS: usize = 8;

/// The members that every event has.
const ENVELOPE: [&str; 4] = ["id", "kind", "timestamp", "source"];

impl Event {
    /// Whether its document may be shortened after it was stored.
    pub fn is_bulky_observation(&self) -> bool {
        self.kind == BULKY_EVENT_KIND && self.is_bulky()
    }

    /// Whether its document is large.
    pub fn is_bulky(&self) -> bool {
        crate::json::text_bytes(&self.body) > BULKY_EVENT_BYTES
    }

    /// Cuts long texts in the document, so that it is no longer bulky. Id, kind and time stay.
    pub fn shorten(&mut self) {
        self.body = shorten_document(std::mem::take(&mut self.body));
    }
}

/// The short form of a document of more than [`BULKY_EVENT_BYTES`]; others are left as they are.
pub fn shorten_document(mut document: Value) -> Value {
    let fits = |document: &Value| crate::json::text_bytes(document) <= BULKY_EVENT_BYTES;
    if fits(&document) {
        return document;
    }
    cut(&mut document, KEPT_CHARS[0], usize::MAX);
    if !fits(&document) {
        cut(&mut document, KEPT_CHARS[1], KEPT_ITEMS);
    }
    if !fits(&document) {
        document = envelope(&document);
    }
    document
}

/// Cuts the texts and lists of a document. Documents are as deep as their parser lets them be (128 levels).
fn cut(value: &mut Value, chars: usize, items: usize) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(chars) {
                let removed = text.len() - end;
                text.truncate(end);
                // Writing to a text cannot fail.
                let _ = write!(
                    text,
                    "\n[{removed} bytes were removed: the storage quota of the owner is used up]"
                );
            }
        }
        Value::Array(list) => {
            list.truncate(items);
            for item in list {
                cut(item, chars, items);
            }
        }
        Value::Object(members) => {
            for member in members.values_mut() {
                cut(member, chars, items);
            }
        }
        _ => {}
    }
}

/// What is left of a document that is large in spite of short texts and lists: no agent sends one.
fn envelope(document: &Value) -> Value {
    let short = |name: &str| {
        let text = document.get(name)?.as_str()?;
        let text: String = text.chars().take(KEPT_CHARS[1]).collect();
        Some((name.to_owned(), json!(text)))
    };
    let members: Map<_, _> = ENVELOPE.into_iter().filter_map(short).collect();
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_small(document: &Value) -> bool {
        document.to_string().len() <= BULKY_EVENT_BYTES
    }

    #[test]
    fn an_observation_keeps_its_schema_and_loses_what_the_tool_printed() {
        let printed = "é".repeat(20_000);
        let observation = json!({
            "id": "1", "kind": "ObservationEvent", "timestamp": "2026-01-01T00:00:00", "source": "environment",
            "tool_name": "terminal", "tool_call_id": "call_1", "action_id": "2",
            "observation": {
                "kind": "TerminalObservation", "exit_code": 0, "is_error": false,
                "content": [{"type": "text", "text": printed}],
            },
        });
        let short = shorten_document(observation.clone());
        assert!(is_small(&short));
        let text = short["observation"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.starts_with("ééé") && text.ends_with("is used up]"),
            "{text}"
        );
        let mut expected = observation;
        expected["observation"]["content"][0]["text"] = json!(text);
        assert_eq!(short, expected);
        assert_eq!(shorten_document(short.clone()), short, "once");
    }

    #[test]
    fn what_is_small_is_left_alone() {
        let small = json!({"id": "1", "text": "x".repeat(BULKY_EVENT_BYTES / 2)});
        assert_eq!(shorten_document(small.clone()), small);
    }

    #[test]
    fn whatever_is_large_is_small_afterwards_and_has_its_envelope() {
        let wide: Vec<Value> = (0..20_000).map(|n| json!({ "n": n })).collect();
        let members: Map<_, _> = (0..20_000).map(|n| (format!("m{n}"), json!(n))).collect();
        let quotes = "\"\u{1}".repeat(50_000);
        for bulk in [
            json!(wide),
            Value::Object(members),
            json!(quotes),
            json!({ "k".repeat(90_000): 1 }),
        ] {
            let document = json!({
                "id": "1", "kind": "Odd", "timestamp": "then", "source": "agent", "bulk": bulk,
            });
            let short = shorten_document(document);
            assert!(is_small(&short), "{} bytes", short.to_string().len());
            assert_eq!(short["id"], "1");
            assert_eq!(short["kind"], "Odd");
        }
    }
}
