//! [`HttpAgentRuntime`] and its implementations of the ports of agent servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentConversationReader, AgentEndpoint, AgentError, AgentEventPage,
    AgentLifecycle, AgentRuntime, InitRequest, LaunchRequest, LlmProfile, MessageDelivery, Plugin,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::MessageInput;
use domain::crash_point;
use domain::event::Event;
use domain::id::{ConversationId, SandboxId};
use endpoint_guard::EndpointGuard;
use hyper::Method;
use serde_json::Value;
use tracing::{Instrument, debug_span};
use url::Url;

use crate::config::Config;
use crate::errors::{CallError, Scrubber, refused};
use crate::launch;
use crate::mcp::{self, McpEntry};
use crate::plugins;
use crate::server_info::ServerInfo;
use crate::transport::{AgentAddress, AgentCall, AgentReply, Transport};

/// Conversations per request. The agent server accepts up to 99 ids; each one returns the whole agent and its statistics.
const IDS_PER_CALL: usize = 20;
/// Page sizes to try one after the other while a page exceeds the size limit. The agent server does not limit the size of events.
const PAGE_SIZES: [&str; 3] = ["100", "10", "1"];

/// The ports of agent servers over one shared HTTP client.
pub struct HttpAgentRuntime {
    pub(crate) transport: Transport,
    pub(crate) config: Config,
    clock: Arc<dyn Clock>,
}

impl HttpAgentRuntime {
    /// Builds the client. `clock` dates events without a readable time. `guard` proves for each connection that the sandbox
    /// accepted it.
    pub fn new(config: Config, clock: Arc<dyn Clock>, guard: Arc<dyn EndpointGuard>) -> Self {
        Self {
            transport: Transport::new(&config, guard),
            config,
            clock,
        }
    }

    pub(crate) async fn server_info(&self, at: &AgentEndpoint) -> Result<ServerInfo, AgentError> {
        let call = AgentCall::new(Method::GET, at, &["server_info"], self.config.read)?;
        let reply = self.transport.exchange(&call).await?;
        ServerInfo::read(&document(&reply, &Scrubber::of_key(&at.key))?)
    }

    /// Tests the MCP servers and plugins of a launch. Returns the usable ones, and a note for the user about each of the others.
    /// A conversation without one tool is better than no conversation.
    ///
    /// An MCP server that hangs fails every run at 1.34. At 1.58 it costs half a minute and the tools of all MCP servers. A plugin
    /// that does not load fails every run at both.
    async fn usable_servers_and_plugins<'a>(
        &self,
        at: &AgentEndpoint,
        request: &'a LaunchRequest,
    ) -> (Vec<McpEntry>, Vec<&'a Plugin>, Vec<String>) {
        let entries = mcp::entries(request);
        let time_limit = self.config.probe;
        let (reachable, loadable) = futures::join!(
            mcp::reachable_servers(&self.transport, at, &entries, time_limit),
            plugins::loadable_plugins(&self.transport, at, &request.plugins, time_limit),
        );
        let mut notes = Vec::new();
        let mut usable_entries = Vec::new();
        for (entry, is_reachable) in entries.into_iter().zip(reachable) {
            if is_reachable {
                usable_entries.push(entry);
            } else {
                let name = entry.name;
                notes.push(format!(
                    "MCP server {name} does not answer; the conversation was started without it."
                ));
            }
        }
        let mut usable_plugins = Vec::new();
        for (plugin, is_loadable) in request.plugins.iter().zip(loadable) {
            if is_loadable {
                usable_plugins.push(plugin);
            } else {
                let label = plugins::label(plugin);
                notes.push(format!(
                    "Plugin {label} could not be fetched or read; the conversation was started without it."
                ));
            }
        }
        (usable_entries, usable_plugins, notes)
    }

    async fn launch(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let server = self.server_info(at).await?;
        let (mcp, plugins, mut notes) = self.usable_servers_and_plugins(at, request).await;
        let (body, body_notes) = launch::body(request, &server, &mcp, &plugins);
        notes.extend(body_notes);
        let call = AgentCall::new(
            Method::POST,
            at,
            &["api", "conversations"],
            self.config.start,
        )?
        .json(&body);
        let reply = self.change("agent: making the conversation", &call).await?;
        let info = document(&reply, &Scrubber::of_launch(&at.key, request))?;
        let conversation = AgentConversation::from_document(&info);
        let mut conversation = conversation
            .ok_or_else(|| AgentError::Malformed("the conversation has no valid id".to_owned()))?;
        conversation.notes = notes;
        // An interrupted start can leave a conversation without its first message. The agent server answers 200 to the repeated
        // request and does not add the message. A document without this member counts as one with the message, because a message
        // must not be sent twice.
        let has_no_message = info.get("last_user_message_id") == Some(&Value::Null);
        if let Some(first) = &request.initial_message
            && reply.status == 200
            && has_no_message
            && self
                .send_message(at, request.conversation_id, first)
                .await?
                == MessageDelivery::RunRefused
        {
            let reason = "the sandbox is at its limit of concurrent runs".to_owned();
            return Err(AgentError::Rejected {
                status: 429,
                reason,
            });
        }
        Ok(conversation)
    }

    async fn send_message(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError> {
        let call = of_conversation(Method::POST, at, id, &["events"], self.config.send)?;
        let call = call.json(&launch::message(message));
        let reply = self.change("agent: saying", &call).await?;
        match reply.status {
            429 => Ok(MessageDelivery::RunRefused),
            _ if reply.is_success() => Ok(MessageDelivery::Delivered),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }

    /// An exchange that changes the state of the agent server, with crash points before and after it.
    pub(crate) async fn change(
        &self,
        crash_point_name: &'static str,
        call: &AgentCall,
    ) -> Result<AgentReply, CallError> {
        crash_point::before(crash_point_name);
        let outcome = self.transport.exchange(call).await;
        crash_point::after(crash_point_name);
        outcome
    }

    async fn page(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
        limit: &str,
    ) -> Result<AgentReply, CallError> {
        let mut call =
            of_conversation(Method::GET, at, id, &["events", "search"], self.config.read)?;
        // The value `TIMESTAMP` selects the order of the log, which can differ from that of the timestamps.
        call = call.query("limit", limit).query("sort_order", "TIMESTAMP");
        match (cursor, from) {
            (Some(cursor), _) => call = call.query("page_id", cursor),
            (None, Some(from)) => call = call.query("timestamp__gte", &from.to_string()),
            (None, None) => {}
        }
        self.transport.exchange(&call).await
    }
}

#[async_trait]
impl AgentRuntime for HttpAgentRuntime {
    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let span = debug_span!("agent.start", conversation.id = %request.conversation_id);
        self.launch(at, request).instrument(span).await
    }

    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError> {
        let span = debug_span!("agent.send", conversation.id = %id);
        self.send_message(at, id, message).instrument(span).await
    }

    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        let call = of_conversation(Method::POST, at, id, &["interrupt"], self.config.stop)?;
        let call = call.idempotent();
        let reply = self.change("agent: interrupting", &call).await?;
        match reply.status {
            _ if reply.is_success() => Ok(()),
            // 1.34 answers 400 for an unknown id, and for no other reason.
            400 => Err(AgentError::NotFound),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }

    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        self.use_llm(at, id, profile).await
    }

    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        self.use_acp_model(at, id, model).await
    }

    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        self.keep_profiles(at, profiles).await
    }

    async fn delete_conversation(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<(), AgentError> {
        let call = of_conversation(Method::DELETE, at, id, &[], self.config.stop)?;
        let reply = self.change("agent: forgetting", &call).await?;
        match reply.status {
            _ if reply.is_success() => Ok(()),
            // Unknown id: 400 from 1.34, 404 from 1.58.
            400 | 404 => Ok(()),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }
}

#[async_trait]
impl AgentLifecycle for HttpAgentRuntime {
    async fn is_dormant(&self, sandbox: &SandboxId, url: &Url) -> Result<bool, AgentError> {
        self.check_dormant(AgentAddress { sandbox, url }).await
    }

    async fn prewarm(&self, sandbox: &SandboxId, url: &Url) {
        let span = debug_span!("agent.prewarm");
        let requests = self.send_prewarm_requests(AgentAddress { sandbox, url });
        requests.instrument(span).await;
    }

    async fn wake(
        &self,
        sandbox: &SandboxId,
        url: &Url,
        init_request: &InitRequest,
    ) -> Result<(), AgentError> {
        let span = debug_span!("agent.wake");
        let initialization = self.initialize(AgentAddress { sandbox, url }, init_request);
        initialization.instrument(span).await
    }

    async fn is_alive(&self, sandbox: &SandboxId, url: &Url) -> bool {
        let at = AgentAddress { sandbox, url };
        let Ok(call) = AgentCall::open(Method::GET, at, &["alive"], self.config.alive) else {
            return false;
        };
        let reply = self.transport.exchange(&call).await;
        reply.is_ok_and(|reply| reply.is_success())
    }

    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError> {
        let seconds = self.server_info(at).await?.idle_time;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }

    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError> {
        Ok(self.server_info(at).await?.version)
    }
}

#[async_trait]
impl AgentConversationReader for HttpAgentRuntime {
    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError> {
        let mut conversations = HashMap::new();
        for chunk in ids.chunks(IDS_PER_CALL) {
            let mut call =
                AgentCall::new(Method::GET, at, &["api", "conversations"], self.config.read)?;
            for id in chunk {
                call = call.query("ids", &id.dashed());
            }
            let reply = self.transport.exchange(&call).await?;
            let Value::Array(infos) = document(&reply, &Scrubber::of_key(&at.key))? else {
                return Err(AgentError::Malformed(
                    "the conversations are not a JSON list".to_owned(),
                ));
            };
            let parsed = infos.iter().filter_map(AgentConversation::from_document);
            conversations.extend(parsed.map(|conversation| (conversation.id, conversation)));
        }
        Ok(ids
            .iter()
            .map(|id| conversations.get(id).cloned())
            .collect())
    }

    async fn events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<AgentEventPage, AgentError> {
        let mut reply = Err(CallError::TooLarge(self.config.max_body));
        for limit in PAGE_SIZES {
            reply = self.page(at, id, from, cursor, limit).await;
            if !matches!(reply, Err(CallError::TooLarge(_))) {
                break;
            }
        }
        let mut page = document(&reply?, &Scrubber::of_key(&at.key))?;
        let Value::Array(items) = page["items"].take() else {
            return Err(AgentError::Malformed(
                "the page of events has no list `items`".to_owned(),
            ));
        };
        let received_at = self.clock.now();
        Ok(AgentEventPage {
            items: items
                .into_iter()
                .filter_map(|event| Event::from_document(event, received_at))
                .collect(),
            next: page["next_page_id"].as_str().map(str::to_owned),
        })
    }

    async fn count_events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<u64, AgentError> {
        let call = of_conversation(Method::GET, at, id, &["events", "count"], self.config.read)?;
        let reply = self.transport.exchange(&call).await?;
        document(&reply, &Scrubber::of_key(&at.key))?
            .as_u64()
            .ok_or_else(|| AgentError::Malformed("the count of events is not a number".to_owned()))
    }
}

/// A call to `/api/conversations/{id}/…`.
pub(crate) fn of_conversation(
    method: Method,
    at: &AgentEndpoint,
    id: ConversationId,
    rest: &[&str],
    deadline: Duration,
) -> Result<AgentCall, CallError> {
    let id = id.dashed();
    let segments = [&["api", "conversations", &id], rest].concat();
    AgentCall::new(method, at, &segments, deadline)
}

pub(crate) fn document(reply: &AgentReply, scrub: &Scrubber<'_>) -> Result<Value, AgentError> {
    if !reply.is_success() {
        return Err(refused(reply.status, &reply.body, scrub));
    }
    // The error omits the parser's message, which could quote the document.
    serde_json::from_slice(&reply.body)
        .map_err(|_| AgentError::Malformed("the response is not valid JSON".to_owned()))
}
