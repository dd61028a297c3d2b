//! Helpers that the suites share.

use std::sync::Arc;
use std::time::Duration;

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::AgentEndpoint;
use domain::clock::{Clock, Timestamp};
use domain::conversation::MessageInput;
use domain::id::{ConversationId, SandboxId};
use endpoint_guard::Unguarded;
use secrecy::SecretString;
use serde_json::json;

use crate::stub::{Stub, StubAction};

pub(crate) const ID: &str = "0b66db04-ec2c-4851-ab07-d9afb41e22ab";
pub(crate) const OTHER_ID: &str = "e8221385-1890-43f9-927e-661137d675ce";

pub(crate) struct NoonClock;

impl Clock for NoonClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(12)
    }
}

pub(crate) fn runtime() -> HttpAgentRuntime {
    let config = Config {
        alive: Duration::from_secs(5),
        read: Duration::from_secs(5),
        probe: Duration::from_secs(2),
        max_body_bytes: 1000,
        ..Config::default()
    };
    HttpAgentRuntime::new(config, Arc::new(NoonClock), Arc::new(Unguarded))
}

pub(crate) fn sandbox() -> SandboxId {
    "one".parse().unwrap()
}

pub(crate) fn endpoint_of(stub: &Stub) -> AgentEndpoint {
    AgentEndpoint {
        sandbox: sandbox(),
        url: stub.url.clone(),
        key: SecretString::from("session-key-1"),
    }
}

pub(crate) fn conversation_id(text: &str) -> ConversationId {
    text.parse().unwrap()
}

pub(crate) fn hello_message() -> MessageInput {
    let content = vec![json!({"type": "text", "text": "hi"})];
    MessageInput {
        role: "user".to_owned(),
        content,
        run: true,
    }
}

pub(crate) fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

pub(crate) fn server_info_response(version: &str) -> StubAction {
    StubAction::Json(
        200,
        json!({"version": version, "usable_tools": ["terminal", "browser_tool_set"]}),
    )
}
