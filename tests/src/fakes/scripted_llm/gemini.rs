//! Requests and answers in the form of Gemini: a request becomes one of chat completions.

use serde_json::{Value, json};

use super::script::ModelTurn;
use super::wire;

/// The model that a path names, and whether it asks for events.
pub(super) fn call_of(path: &str) -> Option<(&str, bool)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (name, action) = path.rsplit('/').next()?.split_once(':')?;
    match action {
        "generateContent" => Some((name, false)),
        "streamGenerateContent" => Some((name, query == "alt=sse")),
        _ => None,
    }
}

pub(super) fn chat_request(body: &Value, model: &str) -> Value {
    let tools = list(&body["tools"]).iter();
    let functions = tools.flat_map(|tool| {
        list(&tool["functionDeclarations"])
            .iter()
            .chain(list(&tool["function_declarations"]))
    });
    let tools: Vec<_> = functions
        .map(|it| json!({"type": "function", "function": function(it)}))
        .collect();
    let contents = list(&body["contents"]).iter();
    let messages: Vec<_> = contents
        .flat_map(|content| {
            list(&content["parts"])
                .iter()
                .map(|part| message(&content["role"], part))
        })
        .collect();
    json!({"model": model, "messages": messages, "tools": tools})
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names of types may be in capitals.
fn function(declaration: &Value) -> Value {
    let mut function = declaration.clone();
    let schema = ["parameters", "parametersJsonSchema"].map(|it| &declaration[it]);
    let mut schema = schema
        .into_iter()
        .find(|it| it.is_object())
        .cloned()
        .unwrap_or_default();
    for property in schema["properties"].as_object_mut().into_iter().flatten() {
        let kind = property.1["type"].as_str().map(str::to_ascii_lowercase);
        if let Some(kind) = kind {
            property.1["type"] = json!(kind);
        }
    }
    function["parameters"] = schema;
    function
}

fn message(role: &Value, part: &Value) -> Value {
    match (
        part.get("functionResponse")
            .or(part.get("function_response")),
        role.as_str(),
    ) {
        (Some(_), _) => json!({"role": "tool"}),
        (None, Some("model")) => json!({"role": "assistant"}),
        (None, _) => json!({"role": "user", "content": part["text"]}),
    }
}

pub(super) fn answer(turn: &ModelTurn, model: &str, is_streamed: bool) -> Vec<u8> {
    let part = match turn {
        ModelTurn::Text(text) => json!({"text": text}),
        ModelTurn::Call { tool, arguments } => {
            json!({"functionCall": {"name": tool, "args": arguments}})
        }
    };
    let content = json!({"role": "model", "parts": [part]});
    let document = json!({
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
        "modelVersion": model,
    });
    if is_streamed {
        return wire::events(&[document]).into_bytes();
    }
    wire::json_response("200 OK", &document)
}
