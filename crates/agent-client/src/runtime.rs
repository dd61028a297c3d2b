//! The port, call by call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentEndpoint, AgentError, AgentEventPage, AgentRuntime, InitRequest,
    LaunchRequest, LlmProfile, MessageDelivery, Plugin,
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

/// Ids asked for at once: the agent server refuses 100, and an info carries the whole agent and its statistics.
const IDS_PER_CALL: usize = 20;
/// Page sizes tried in turn when a page is larger than we read: the agent server bounds neither events nor pages.
const PAGE_SIZES: [&str; 3] = ["100", "10", "1"];

/// [`AgentRuntime`] over one shared HTTP client.
pub struct HttpAgentRuntime {
    pub(crate) transport: Transport,
    pub(crate) config: Config,
    clock: Arc<dyn Clock>,
}

impl HttpAgentRuntime {
    /// Builds the client. `clock` dates events that carry no readable time; `guard` proves of each connection that the sandbox
    /// has accepted it.
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

    /// The MCP servers and plugins of a launch that may be used, and a note for each that may not: the user's work matters
    /// more than one tool. How long it asks bounds how late a start may be.
    ///
    /// With an MCP server that does not answer, an old agent server refuses every run, and a newer one (1.58) waits half a
    /// minute and then goes without the tools of all others too. A plugin that does not load fails the runs of both.
    async fn usable<'a>(
        &self,
        at: &AgentEndpoint,
        request: &'a LaunchRequest,
    ) -> (Vec<McpEntry>, Vec<&'a Plugin>, Vec<String>) {
        let entries = mcp::entries(request);
        let time_limit = self.config.probe;
        let (answering, loading) = futures::join!(
            mcp::reachable_servers(&self.transport, at, &entries, time_limit),
            plugins::loadable_plugins(&self.transport, at, &request.plugins, time_limit),
        );
        let mut notes = Vec::new();
        let mut kept = Vec::new();
        for (entry, answers) in entries.into_iter().zip(answering) {
            if answers {
                kept.push(entry);
            } else {
                let name = entry.name;
                notes.push(format!(
                    "MCP server {name} does not answer; the conversation was started without it."
                ));
            }
        }
        let mut good = Vec::new();
        for (plugin, loads) in request.plugins.iter().zip(loading) {
            if loads {
                good.push(plugin);
            } else {
                let label = plugins::label(plugin);
                notes.push(format!(
                    "Plugin {label} could not be fetched or read; the conversation was started without it."
                ));
            }
        }
        (kept, good, notes)
    }

    async fn launch(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let server = self.server_info(at).await?;
        let (mcp, plugins, mut notes) = self.usable(at, request).await;
        let (body, more) = launch::body(request, &server, &mcp, &plugins);
        notes.extend(more);
        let call = AgentCall::new(
            Method::POST,
            at,
            &["api", "conversations"],
            self.config.start,
        )?
        .json(&body);
        let making = self.change("agent: making the conversation", &call);
        let reply = making.await?;
        let info = document(&reply, &Scrubber::of_launch(&at.key, request))?;
        let mut conversation = conversation(&info)?;
        conversation.notes = notes;
        // A start that died half way leaves a conversation to which nothing was said; the agent server then only
        // returns it. Where it does not tell, assume that the message is there: nothing may be said twice.
        let silent = info.get("last_user_message_id") == Some(&Value::Null);
        if let Some(first) = &request.initial_message
            && reply.status == 200
            && silent
            && self.say(at, request.conversation_id, first).await? == MessageDelivery::RunRefused
        {
            let reason = "the sandbox is at its limit of concurrent runs".to_owned();
            return Err(AgentError::Rejected {
                status: 429,
                reason,
            });
        }
        Ok(conversation)
    }

    async fn say(
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

    /// An exchange that changes something there.
    pub(crate) async fn change(
        &self,
        deed: &'static str,
        call: &AgentCall,
    ) -> Result<AgentReply, CallError> {
        crash_point::before(deed);
        let outcome = self.transport.exchange(call).await;
        crash_point::after(deed);
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
        // The log's own order, which is not quite that of the timestamps.
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
    async fn is_dormant(&self, sandbox: &SandboxId, url: &Url) -> Result<bool, AgentError> {
        self.check_dormant(AgentAddress { sandbox, url }).await
    }

    async fn prewarm(&self, sandbox: &SandboxId, url: &Url) {
        let span = debug_span!("agent.prewarm");
        let asked = self.send_prewarm_requests(AgentAddress { sandbox, url });
        asked.instrument(span).await;
    }

    async fn wake(
        &self,
        sandbox: &SandboxId,
        url: &Url,
        init_request: &InitRequest,
    ) -> Result<(), AgentError> {
        let span = debug_span!("agent.wake");
        let woken = self.initialize(AgentAddress { sandbox, url }, init_request);
        woken.instrument(span).await
    }

    async fn is_alive(&self, sandbox: &SandboxId, url: &Url) -> bool {
        let call = AgentCall::open(
            Method::GET,
            AgentAddress { sandbox, url },
            &["alive"],
            self.config.alive,
        );
        match call {
            Ok(call) => self
                .transport
                .exchange(&call)
                .await
                .is_ok_and(|reply| reply.is_success()),
            Err(_) => false,
        }
    }

    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError> {
        let seconds = self.server_info(at).await?.idle_time;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }

    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError> {
        Ok(self.server_info(at).await?.version)
    }

    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let span = debug_span!("agent.start", conversation.id = %request.conversation_id);
        self.launch(at, request).instrument(span).await
    }

    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError> {
        let mut known = HashMap::new();
        for some in ids.chunks(IDS_PER_CALL) {
            let mut call =
                AgentCall::new(Method::GET, at, &["api", "conversations"], self.config.read)?;
            for id in some {
                call = call.query("ids", &id.dashed());
            }
            let reply = self.transport.exchange(&call).await?;
            let Value::Array(infos) = document(&reply, &Scrubber::of_key(&at.key))? else {
                return Err(AgentError::Malformed("a batch that is no list".to_owned()));
            };
            let read = infos.iter().filter_map(AgentConversation::from_document);
            known.extend(read.map(|info| (info.id, info)));
        }
        Ok(ids.iter().map(|id| known.get(id).cloned()).collect())
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
                "a page of events without items".to_owned(),
            ));
        };
        let received = self.clock.now();
        Ok(AgentEventPage {
            items: items
                .into_iter()
                .filter_map(|e| Event::from_document(e, received))
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
            .ok_or_else(|| AgentError::Malformed("a count that is no number".to_owned()))
    }

    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError> {
        let span = debug_span!("agent.send", conversation.id = %id);
        self.say(at, id, message).instrument(span).await
    }

    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        let call = of_conversation(Method::POST, at, id, &["interrupt"], self.config.stop)?;
        let call = call.idempotent();
        let reply = self.change("agent: interrupting", &call).await?;
        match reply.status {
            _ if reply.is_success() => Ok(()),
            // 1.34 answers 400 and nothing else to an id it does not have.
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
            // Not there: 400 from 1.34, 404 from 1.58.
            400 | 404 => Ok(()),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
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
    // The parser's message could quote the document.
    serde_json::from_slice(&reply.body)
        .map_err(|_| AgentError::Malformed("an answer that is not JSON".to_owned()))
}

fn conversation(info: &Value) -> Result<AgentConversation, AgentError> {
    AgentConversation::from_document(info)
        .ok_or_else(|| AgentError::Malformed("a conversation without an id".to_owned()))
}
