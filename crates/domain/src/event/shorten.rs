//! The short form of events, which is stored when the owner's quota is used up.
//!
//! Clients parse events by schemas that forbid unknown fields. The short form therefore has the fields of the original,
//! with truncated texts.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Event;

/// Kind of the events that are shortened after they were stored: the output of tools.
pub const BULKY_EVENT_KIND: &str = "ObservationEvent";

/// Size above which a document is bulky, in bytes. A shortened document is at most this large.
pub const BULKY_EVENT_BYTES: usize = 16 * 1024;

/// Characters kept of each text, in the first and in the second attempt.
const SHORTENED_TEXT_CHARS: [usize; 2] = [1_000, 100];

/// Items kept of each list in the second attempt.
const SHORTENED_LIST_ITEMS: usize = 8;

/// The fields that every event has.
const ENVELOPE_FIELDS: [&str; 4] = ["id", "kind", "timestamp", "source"];

impl Event {
    /// Whether this is the output of a tool with a bulky document.
    pub fn is_bulky_observation(&self) -> bool {
        self.kind == BULKY_EVENT_KIND && self.is_bulky()
    }

    /// Whether the document is larger than [`BULKY_EVENT_BYTES`].
    pub fn is_bulky(&self) -> bool {
        crate::json::text_bytes(&self.body) > BULKY_EVENT_BYTES
    }

    /// Shortens texts in the document until it is not bulky. Id, kind and time stay.
    pub fn shorten(&mut self) {
        self.body = shorten_document(std::mem::take(&mut self.body));
    }
}

/// The short form of a document above [`BULKY_EVENT_BYTES`]; smaller ones are returned unchanged.
pub fn shorten_document(mut document: Value) -> Value {
    let fits = |document: &Value| crate::json::text_bytes(document) <= BULKY_EVENT_BYTES;
    if fits(&document) {
        return document;
    }
    truncate_values(&mut document, SHORTENED_TEXT_CHARS[0], usize::MAX);
    if !fits(&document) {
        truncate_values(&mut document, SHORTENED_TEXT_CHARS[1], SHORTENED_LIST_ITEMS);
    }
    if !fits(&document) {
        document = envelope(&document);
    }
    document
}

/// Truncates the texts and lists of a document. The parser bounds the depth of the recursion (128 levels).
fn truncate_values(value: &mut Value, chars: usize, items: usize) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(chars) {
                let removed = text.len() - end;
                text.truncate(end);
                // Writing to a `String` cannot fail.
                let _ = write!(
                    text,
                    "\n[{removed} bytes were removed: the storage quota of the owner is used up]"
                );
            }
        }
        Value::Array(list) => {
            list.truncate(items);
            for item in list {
                truncate_values(item, chars, items);
            }
        }
        Value::Object(members) => {
            for member in members.values_mut() {
                truncate_values(member, chars, items);
            }
        }
        _ => {}
    }
}

/// The envelope of a document that is bulky in spite of short texts and lists. No agent sends such a document.
fn envelope(document: &Value) -> Value {
    let short = |name: &str| {
        let text = document.get(name)?.as_str()?;
        let text: String = text.chars().take(SHORTENED_TEXT_CHARS[1]).collect();
        Some((name.to_owned(), json!(text)))
    };
    let members: Map<_, _> = ENVELOPE_FIELDS.into_iter().filter_map(short).collect();
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_small(document: &Value) -> bool {
        document.to_string().len() <= BULKY_EVENT_BYTES
    }

    #[test]
    fn a_shortened_observation_keeps_its_schema() {
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
    fn a_small_document_is_unchanged() {
        let small = json!({"id": "1", "text": "x".repeat(BULKY_EVENT_BYTES / 2)});
        assert_eq!(shorten_document(small.clone()), small);
    }

    #[test]
    fn every_large_document_becomes_small_and_keeps_its_envelope() {
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
