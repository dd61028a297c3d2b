//! The Model Context Protocol over streamable HTTP, as far as a server without sessions needs it: every request is answered
//! on its own, and nothing is sent that was not asked for.
//!
//! Knows: JSON-RPC, the protocol's versions, the tools. The route (`routes/mcp.rs`) knows who calls and how answers travel.
//! By hand, because the official crate is a framework with sessions and streams of its own (tokio tasks, tower), and what is
//! needed of it is four methods.

mod arguments;
mod rpc;
mod tools;
mod version;

use application::App;
use application::pull_requests::PullRequestCaller;
use serde_json::{Map, Value, json};

use crate::decode::JsonFault;
pub(crate) use rpc::{Code, fault};
use rpc::{Fault, Message, Outcome};
pub(crate) use version::Version;

/// Messages of one batch, which are worked on one after the other.
const MOST_MESSAGES: usize = 10;

/// What is sent back.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    /// There was nothing to answer.
    Taken,
    /// One answer, or the answers of a batch.
    Answers(Value),
    /// The whole body was nothing that could be answered.
    Refused(Value),
}

/// Works on a body for this caller.
pub(crate) async fn exchange(
    app: &App,
    opener: &PullRequestCaller,
    version: Version,
    body: Result<Value, JsonFault>,
) -> Reply {
    match body {
        Err(_) => Reply::Refused(fault(&Value::Null, Code::Parse, "The body is not JSON")),
        Ok(Value::Array(messages)) => batch(app, opener, version, messages).await,
        Ok(message) => match Message::read(message) {
            Message::Invalid(answer) => Reply::Refused(answer),
            Message::Request { id, method, params } => {
                Reply::Answers(answer(app, opener, (id, &method, params)).await)
            }
            Message::Unanswered => Reply::Taken,
        },
    }
}

async fn batch(app: &App, opener: &PullRequestCaller, version: Version, messages: Vec<Value>) -> Reply {
    let refused = |why: &str| Reply::Refused(fault(&Value::Null, Code::Invalid, why));
    if !version.has_batches() {
        return refused("This version of the protocol has no batches");
    }
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        return refused(&format!("A batch has 1 to {MOST_MESSAGES} messages"));
    }
    let mut answers = Vec::new();
    for message in messages {
        match Message::read(message) {
            Message::Invalid(answer) => answers.push(answer),
            Message::Request { id, method, .. } if method == "initialize" => {
                answers.push(fault(&id, Code::Invalid, "initialize stands alone"));
            }
            Message::Request { id, method, params } => {
                answers.push(answer(app, opener, (id, &method, params)).await);
            }
            Message::Unanswered => {}
        }
    }
    if answers.is_empty() {
        return Reply::Taken;
    }
    Reply::Answers(answers.into())
}

async fn answer(
    app: &App,
    opener: &PullRequestCaller,
    (id, method, params): (Value, &str, Map<String, Value>),
) -> Value {
    let outcome: Outcome = match method {
        "initialize" => Ok(initialize(&params)),
        "ping" => Ok(json!({})),
        "tools/list" if params.get("cursor").is_some_and(|it| !it.is_null()) => {
            Err(Fault(Code::Params, "The list has one page"))
        }
        "tools/list" => Ok(json!({"tools": tools::list()})),
        "tools/call" => tools::call(app, opener, &params).await,
        _ => Err(Fault(Code::Method, "Method not found")),
    };
    rpc::answer(&id, outcome)
}

fn initialize(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = asked.and_then(Version::read).unwrap_or_default();
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": {"tools": {"listChanged": false}},
        "serverInfo": {"name": "agent-workspace", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "Opens pull requests with the git tokens of the user that you work for. Push the source branch first.",
    })
}
