//! The document: references resolve, and every operation documents its responses.

use serde_json::Value;

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|member| references(member, found));
        }
        Value::Array(list) => list.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = http_api::openapi_document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn documented_conversations_equal_responses() {
    let document = http_api::openapi_document();
    let schema = &document["components"]["schemas"]["AppConversation"];
    let names: Vec<_> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let required: Vec<_> = schema["required"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(names, required);
    assert_eq!(names.len(), 25);
    for (path, methods) in [
        ("/api/v1/app-conversations", vec!["get", "post"]),
        (
            "/api/v1/app-conversations/{conversation_id}",
            vec!["delete", "patch"],
        ),
        ("/api/v1/sandboxes", vec!["get", "post"]),
        ("/api/v1/webhooks/events/{conversation_id}", vec!["post"]),
    ] {
        let mut found: Vec<_> = document["paths"][path]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        found.sort_unstable();
        assert_eq!(found, methods, "{path}");
    }
}
