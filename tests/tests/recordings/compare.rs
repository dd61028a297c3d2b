//! Compares a response with a recorded one.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::differences::MEMBER_DIFFERENCES;
use crate::exchange::RecordedExchange;

/// The response of this service, with ids replaced by the names of the fixtures.
pub(crate) struct ReplayedResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
}

/// Describes the first difference. `None`: they agree.
pub(crate) fn difference(exchange: &RecordedExchange, answer: &ReplayedResponse) -> Option<String> {
    let body: Value = serde_json::from_str(&answer.text).unwrap_or_else(|_| json!(answer.text));
    if exchange.status != answer.status {
        let recorded = exchange.error.as_ref().map(brief).unwrap_or_default();
        let ours = if answer.status >= 400 {
            brief(&body)
        } else {
            String::new()
        };
        return Some(format!(
            "{} {recorded} → {} {ours}",
            exchange.status, answer.status
        ));
    }
    for (name, recorded) in &exchange.answer_headers {
        let ours = answer.headers.iter().find(|(own, _)| own == name);
        let ours = ours.map_or("nothing", |(_, value)| value.as_str());
        if sorted(ours) != sorted(recorded) {
            return Some(format!("header `{name}: {recorded}` → `{ours}`"));
        }
    }
    if let Some(error) = &exchange.error {
        return error_differs(exchange, error, &body);
    }
    if let Some(text) = &exchange.text_answer {
        let is_same = json!(text) == body || (text == "string" && body.is_string());
        return (!is_same).then(|| format!("`{text}` → {}", brief(&body)));
    }
    let (shape, body) = (exchange.shape.as_ref()?, &body);
    shape_differs(
        "",
        &without(shape, exchange, false),
        &without(body, exchange, true),
    )
}

/// Lists in headers have no order.
fn sorted(list: &str) -> Vec<&str> {
    let mut words: Vec<&str> = list.split(',').map(str::trim).collect();
    words.sort_unstable();
    words
}

fn brief(body: &Value) -> String {
    let text = match body {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let short: String = text.chars().take(160).collect();
    if short.is_empty() {
        short
    } else {
        format!("`{short}`")
    }
}

/// Compares errors word by word. Of validation errors it compares type, location, message, and the names of other keys.
fn error_differs(exchange: &RecordedExchange, recorded: &Value, ours: &Value) -> Option<String> {
    let recorded = reduced(recorded, exchange.is_legacy());
    let ours = reduced(ours, false);
    (recorded != ours).then(|| format!("{} → {}", brief(&recorded), brief(&ours)))
}

/// Legacy operations of this service return locations as strings, and only three keys (D16 and D17 in
/// `docs/reference/wire/legacy.md`).
fn reduced(body: &Value, as_legacy: bool) -> Value {
    let Some(items) = body["detail"].as_array() else {
        return body.clone();
    };
    let reduce = |item: &Value| {
        let mut reduced = Map::new();
        for (name, value) in item.as_object().into_iter().flatten() {
            let value = match name.as_str() {
                "loc" if as_legacy => {
                    let words = value.as_array().into_iter().flatten();
                    words
                        .map(|word| json!(word.as_str().map_or(word.to_string(), str::to_owned)))
                        .collect()
                }
                "type" | "loc" | "msg" => value.clone(),
                "input" | "ctx" if as_legacy => continue,
                // Only the presence of other keys counts.
                _ => Value::Null,
            };
            reduced.insert(name.clone(), value);
        }
        Value::Object(reduced)
    };
    json!({"detail": items.iter().map(reduce).collect::<Vec<_>>()})
}

/// Removes members that only one side has by intention.
fn without(document: &Value, exchange: &RecordedExchange, is_ours: bool) -> Value {
    let is_recorded = |name: &str| {
        exchange
            .shape
            .as_ref()
            .is_some_and(|shape| mentions(shape, name))
    };
    let is_listed = |name: &str| {
        MEMBER_DIFFERENCES.iter().any(|member| {
            member.name == name
                && member.is_ours == is_ours
                && member.in_legacy == exchange.is_legacy()
                // A member that this service adds in one response may be recorded in another.
                && !(is_ours && is_recorded(name))
        })
    };
    match document {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !is_listed(name))
            .map(|(name, value)| (name.clone(), without(value, exchange, is_ours)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| without(item, exchange, is_ours))
            .collect(),
        other => other.clone(),
    }
}

/// Whether a document contains this member at any depth.
pub(crate) fn mentions(document: &Value, name: &str) -> bool {
    match document {
        Value::Object(fields) => {
            fields.contains_key(name) || fields.values().any(|value| mentions(value, name))
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        _ => false,
    }
}

/// A shape is the name of a type, a list with the shape of its items, or an object of shapes. Null matches every shape,
/// because one recording does not show what may be null. An empty list matches every list.
fn shape_differs(at: &str, shape: &Value, ours: &Value) -> Option<String> {
    let at_whole = if at.is_empty() { "the body" } else { at };
    match (shape, ours) {
        (Value::String(kind), _) => {
            let fits = match kind.as_str() {
                "any" | "null" => true,
                "bool" => ours.is_boolean() || ours.is_null(),
                "number" => ours.is_number() || ours.is_null(),
                _ => ours.is_string() || ours.is_null(),
            };
            (!fits).then(|| format!("`{at_whole}`: {kind} → {}", brief(ours)))
        }
        (_, Value::Null) if !at.is_empty() => None,
        (Value::Array(shapes), Value::Array(items)) => {
            let shape = shapes.first()?;
            let differs = |item| shape_differs(&format!("{at}[]"), shape, item);
            items
                .iter()
                .filter(|item| !item.is_null())
                .find_map(differs)
        }
        (Value::Object(shapes), Value::Object(fields)) => {
            let names = |object: &Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            let (recorded, present) = (names(shapes), names(fields));
            if recorded != present {
                return Some(keys_differ(at_whole, &recorded, &present));
            }
            let pairs = shapes.iter().zip(fields.values());
            let mut differing = pairs.map(|((name, shape), ours)| {
                shape_differs(
                    &format!("{at}{}{name}", if at.is_empty() { "" } else { "." }),
                    shape,
                    ours,
                )
            });
            differing.find_map(|difference| difference)
        }
        _ => Some(format!("`{at_whole}` is of another kind: {}", brief(ours))),
    }
}

fn keys_differ(at: &str, recorded: &[String], present: &[String]) -> String {
    let only = |these: &[String], those: &[String]| {
        let only = these.iter().filter(|name| !those.contains(name));
        only.cloned().collect::<Vec<_>>().join(", ")
    };
    let (missing, new) = (only(recorded, present), only(present, recorded));
    if missing.is_empty() && new.is_empty() {
        return format!("`{at}`: keys in another order");
    }
    let mut text = format!("`{at}`:");
    if !missing.is_empty() {
        let _ = write!(text, " without {missing}");
    }
    if !new.is_empty() {
        let _ = write!(text, " with {new}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_compare_keys_their_order_and_types() {
        let shape = json!({"a": "string", "b": [{"c": "number"}]});
        let differs = |ours: Value| shape_differs("", &shape, &ours);
        assert_eq!(differs(json!({"a": "x", "b": []})), None);
        assert_eq!(differs(json!({"a": null, "b": [{"c": 1}, null]})), None);
        assert!(differs(json!({"b": [], "a": "x"})).is_some_and(|text| text.contains("order")));
        assert!(differs(json!({"a": "x"})).is_some_and(|text| text.contains("without b")));
        assert!(differs(json!({"a": "x", "b": [{"c": "1"}]})).is_some());
        assert!(differs(json!({"a": 1, "b": []})).is_some());
        assert!(differs(Value::Null).is_some());
    }
}
