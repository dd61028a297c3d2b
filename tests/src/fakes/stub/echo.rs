//! Error responses that quote their request.

use actix_web::HttpResponse;
use serde_json::{Value, json};

use crate::canaries::MARK;

/// The planted texts come first, plain and escaped as in JSON, because readers truncate the reason.
pub(super) fn refusal(body: &Value) -> HttpResponse {
    let mut planted = Vec::new();
    collect_canaries(body, &mut planted);
    let escaped = planted.iter().map(|text| json!(text).to_string());
    let quoted: Vec<String> = planted.iter().cloned().chain(escaped).collect();
    let refused = json!({
        "detail": quoted.join(" "),
        "exception": body.to_string(),
        "body": body,
    });
    HttpResponse::InternalServerError().json(refused)
}

/// Collects every text that contains a canary.
fn collect_canaries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(MARK) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_canaries(item, found)),
        Value::Object(map) => map.values().for_each(|item| collect_canaries(item, found)),
        _ => {}
    }
}
