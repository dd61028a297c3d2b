//! The Model Context Protocol over streamable HTTP, as far as a server without sessions needs it: every request is answered on
//! its own, and the server sends nothing unasked.
//!
//! Knows JSON-RPC, the protocol's versions and the tools. The route (`routes/integration/mcp.rs`) knows the caller and the
//! transport. Written by hand, because the official crate is a framework with sessions and streams (tokio tasks, tower), and
//! four methods are needed.

mod arguments;
mod rpc;
mod tool;
mod tools;
mod version;

use application::App;
use application::pull_requests::PullRequestCaller;
use serde_json::{Map, Value, json};

use crate::decode::JsonError;
use rpc::{RpcError, RpcMessage, RpcResult};
pub(crate) use rpc::{RpcErrorCode, fault};
pub(crate) use version::ProtocolVersion;

/// Messages of one batch, which are processed in order.
const MAX_BATCH_MESSAGES: usize = 10;

#[derive(Debug, PartialEq)]
pub(crate) enum McpReply {
    /// No message needs a response.
    Accepted,
    /// One response, or the responses of a batch.
    Responses(Value),
    /// The body as a whole is invalid; with the response.
    Refused(Value),
}

pub(crate) async fn exchange(
    app: &App,
    opener: &PullRequestCaller,
    version: ProtocolVersion,
    body: Result<Value, JsonError>,
) -> McpReply {
    match body {
        Err(_) => McpReply::Refused(fault(
            &Value::Null,
            RpcErrorCode::Parse,
            "The body is not JSON",
        )),
        Ok(Value::Array(messages)) => batch(app, opener, version, messages).await,
        Ok(message) => match RpcMessage::read(message) {
            RpcMessage::Invalid(answer) => McpReply::Refused(answer),
            RpcMessage::Request { id, method, params } => {
                McpReply::Responses(answer(app, opener, (id, &method, params)).await)
            }
            RpcMessage::Unanswered => McpReply::Accepted,
        },
    }
}

async fn batch(
    app: &App,
    opener: &PullRequestCaller,
    version: ProtocolVersion,
    messages: Vec<Value>,
) -> McpReply {
    let refused = |why: &str| McpReply::Refused(fault(&Value::Null, RpcErrorCode::Invalid, why));
    if !version.has_batches() {
        return refused("This protocol version does not support batches");
    }
    if messages.is_empty() || messages.len() > MAX_BATCH_MESSAGES {
        return refused(&format!(
            "A batch must have 1 to {MAX_BATCH_MESSAGES} messages"
        ));
    }
    let mut answers = Vec::new();
    for message in messages {
        match RpcMessage::read(message) {
            RpcMessage::Invalid(answer) => answers.push(answer),
            RpcMessage::Request { id, method, .. } if method == "initialize" => {
                answers.push(fault(
                    &id,
                    RpcErrorCode::Invalid,
                    "initialize cannot be part of a batch",
                ));
            }
            RpcMessage::Request { id, method, params } => {
                answers.push(answer(app, opener, (id, &method, params)).await);
            }
            RpcMessage::Unanswered => {}
        }
    }
    if answers.is_empty() {
        return McpReply::Accepted;
    }
    McpReply::Responses(answers.into())
}

async fn answer(
    app: &App,
    opener: &PullRequestCaller,
    (id, method, params): (Value, &str, Map<String, Value>),
) -> Value {
    let outcome: RpcResult = match method {
        "initialize" => Ok(initialize(&params)),
        "ping" => Ok(json!({})),
        "tools/list" if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) => {
            Err(RpcError(
                RpcErrorCode::Params,
                "tools/list has only one page; send no cursor",
            ))
        }
        "tools/list" => Ok(json!({"tools": tools::list()})),
        "tools/call" => tools::call(app, opener, &params).await,
        _ => Err(RpcError(RpcErrorCode::Method, "Method not found")),
    };
    rpc::answer(&id, outcome)
}

fn initialize(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version: ProtocolVersion = asked.and_then(|text| text.parse().ok()).unwrap_or_default();
    json!({
        "protocolVersion": <&str>::from(version),
        "capabilities": {"tools": {"listChanged": false}},
        "serverInfo": {"name": "agent-workspace", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "Opens pull requests with the git tokens of the user that you work for. Push the source branch first.",
    })
}
