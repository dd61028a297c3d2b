//! Errors that quote the request they refuse.

use actix_web::HttpResponse;
use serde_json::{Value, json};

use crate::canaries::MARK;

/// Reasons are cut short by whoever reads them, so the planted texts come first: as they are, as JSON writes them, and in
/// URLs.
pub(super) fn refusal(body: &Value) -> HttpResponse {
    let mut planted = Vec::new();
    collect(body, &mut planted);
    let escaped = planted.iter().map(|text| json!(text).to_string());
    let quoted: Vec<String> = planted.iter().cloned().chain(escaped).collect();
    let refused = json!({
        "detail": quoted.join(" "),
        "exception": body.to_string(),
        "body": body,
    });
    HttpResponse::InternalServerError().json(refused)
}

/// Every text with a canary in it.
fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(MARK) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(map) => map.values().for_each(|item| collect(item, found)),
        _ => {}
    }
}
