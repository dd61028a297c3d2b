//! Reduces a request that breaks a rule, as long as it still breaks the rule.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::rules::{BrokenRule, judge};
use super::surface::ApiSurface;
use super::wire::{Request, exchange};

/// Maximum number of requests for a reduction.
const MAX_ATTEMPTS: usize = 120;

/// Returns the smallest request found that breaks the same rule.
pub(super) async fn smallest(
    surface: &ApiSurface,
    address: SocketAddr,
    request: Request,
    broken: &BrokenRule,
    deadline: Duration,
) -> Request {
    let mut best = request;
    // Each attempt of a hanging request takes the whole deadline.
    let mut tries = if broken.rule == "hangs" {
        3
    } else {
        MAX_ATTEMPTS
    };
    'again: loop {
        for candidate in candidates(&best) {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            let outcome = exchange(address, &candidate.bytes(), deadline).await;
            let verdict = judge(surface, &candidate, &outcome);
            if verdict.is_some_and(|verdict| verdict.rule == broken.rule) {
                best = candidate;
                continue 'again;
            }
        }
        return best;
    }
}

/// All requests that are one step smaller.
fn candidates(request: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    for index in 0..request.headers.len() {
        let mut smaller = request.clone();
        smaller.headers.remove(index);
        all.push(smaller);
    }
    if let Some((path, query)) = request.target.split_once('?') {
        let pairs: Vec<&str> = query.split('&').collect();
        for left_out in 0..pairs.len() {
            let kept: Vec<&str> = pairs
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != left_out)
                .map(|(_, pair)| *pair)
                .collect();
            let mut smaller = request.clone();
            smaller.target = format!("{path}?{}", kept.join("&"));
            smaller
                .target
                .truncate(smaller.target.trim_end_matches('?').len());
            all.push(smaller);
        }
    }
    let Some(body) = &request.body else {
        return all;
    };
    let with = |body: Option<Vec<u8>>| Request {
        body,
        ..request.clone()
    };
    all.push(with(None));
    if let Ok(document) = serde_json::from_slice::<Value>(body) {
        let smaller = shrunk(&document).into_iter();
        all.extend(smaller.map(|document| with(Some(document.to_string().into_bytes()))));
    } else {
        let half = body.len() / 2;
        all.push(with(Some(body[..half].to_owned())));
        all.push(with(Some(body[half..].to_owned())));
    }
    all
}

/// All documents with one part less.
fn shrunk(document: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match document {
        Value::Object(fields) => {
            for name in fields.keys() {
                let mut smaller = fields.clone();
                smaller.shift_remove(name);
                all.push(Value::Object(smaller));
            }
            for (name, value) in fields {
                for value in shrunk(value) {
                    let mut smaller = fields.clone();
                    smaller.insert(name.clone(), value);
                    all.push(Value::Object(smaller));
                }
            }
        }
        Value::Array(items) => {
            for index in 0..items.len() {
                let mut smaller = items.clone();
                smaller.remove(index);
                all.push(Value::Array(smaller));
                for value in shrunk(&items[index]) {
                    let mut smaller = items.clone();
                    smaller[index] = value;
                    all.push(Value::Array(smaller));
                }
            }
        }
        Value::String(text) if text.chars().count() > 8 => {
            let half = text.chars().count() / 2;
            all.push(text.chars().take(half).collect::<String>().into());
            all.push(text.chars().skip(half).collect::<String>().into());
        }
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_shrinks_by_one_thing_at_a_time() {
        let all = shrunk(&json!({"a": [1], "b": 2}));
        assert_eq!(
            all,
            [json!({"b": 2}), json!({"a": [1]}), json!({"a": [], "b": 2})]
        );
    }
}
