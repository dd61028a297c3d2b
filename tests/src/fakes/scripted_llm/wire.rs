//! HTTP/1.1 with one request per connection, and the chat-completions format.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;

use super::script::ModelTurn;

/// Far above the size of any conversation with its system prompt.
const MAX_BODY_BYTES: usize = 32 << 20;
const MAX_HEAD_BYTES: usize = 64 << 10;

pub(super) struct LlmRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) api_key: Option<String>,
    pub(super) body: Vec<u8>,
}

/// `None` for an incomplete or too large request; the caller closes the connection.
pub(super) async fn read_request(from: &mut BufReader<OwnedReadHalf>) -> Option<LlmRequest> {
    let mut first = String::new();
    let mut head = from.take(MAX_HEAD_BYTES as u64);
    head.read_line(&mut first).await.ok()?;
    let mut parts = first.split_whitespace();
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let (mut length, mut api_key) = (0_usize, None);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                length = value.trim().parse().ok().filter(|n| *n <= MAX_BODY_BYTES)?;
            }
            "authorization" => api_key = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            "x-goog-api-key" | "api-key" => api_key = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await.ok()?;
    Some(LlmRequest {
        method,
        path,
        api_key,
        body,
    })
}

pub(super) fn json_response(status: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(super) fn error_response(status: &str, kind: &str, message: &str) -> Vec<u8> {
    json_response(
        status,
        &json!({"error": {"message": message, "type": kind, "code": kind}}),
    )
}

/// The response as one JSON document.
pub(super) fn completion(turn: &ModelTurn, model: &str, response_number: u64) -> Vec<u8> {
    let (mut message, reason) = message_and_reason(turn, response_number);
    message["role"] = json!("assistant");
    let mut body = envelope("chat.completion", model, response_number);
    body["choices"] = json!([{"index": 0, "message": message, "finish_reason": reason}]);
    body["usage"] = usage();
    json_response("200 OK", &body)
}

/// The response as server-sent events, up to the end of the connection.
pub(super) fn completion_stream(turn: &ModelTurn, model: &str, response_number: u64) -> Vec<u8> {
    let (mut delta, reason) = message_and_reason(turn, response_number);
    if let Some(calls) = delta["tool_calls"].as_array_mut() {
        for (index, call) in calls.iter_mut().enumerate() {
            call["index"] = json!(index);
        }
    }
    delta["role"] = json!("assistant");
    let event = |choices: Value| {
        let mut body = envelope("chat.completion.chunk", model, response_number);
        body["choices"] = choices;
        body
    };
    let mut last = event(json!([]));
    last["usage"] = usage();
    let mut out = events(&[
        event(json!([{"index": 0, "delta": delta, "finish_reason": null}])),
        event(json!([{"index": 0, "delta": {}, "finish_reason": reason}])),
        last,
    ]);
    out.push_str("data: [DONE]\n\n");
    out.into_bytes()
}

/// A response of server-sent events, up to the end of the connection.
pub(super) fn events(documents: &[Value]) -> String {
    let mut out = String::from(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\nconnection: close\r\n\r\n",
    );
    for document in documents {
        let _ = write!(out, "data: {document}\n\n");
    }
    out
}

fn message_and_reason(turn: &ModelTurn, response_number: u64) -> (Value, &'static str) {
    match turn {
        ModelTurn::Text(text) => (json!({"content": text}), "stop"),
        ModelTurn::Call { tool, arguments } => {
            let function = json!({"name": tool, "arguments": arguments.to_string()});
            let call = json!({"id": format!("call_{response_number}"), "type": "function", "function": function});
            (json!({"content": null, "tool_calls": [call]}), "tool_calls")
        }
    }
}

fn envelope(object: &str, model: &str, response_number: u64) -> Value {
    json!({"id": format!("scripted-{response_number}"), "object": object, "created": 1_700_000_000, "model": model})
}

fn usage() -> Value {
    json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
}
