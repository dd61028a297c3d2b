//! [`HttpAgentRuntime`] and its implementations of the ports of agent servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentConversationReader, AgentEndpoint, AgentError, AgentEventPage,
    AgentLifecycle, AgentRuntime, InitRequest, LaunchRequest, LlmProfile, MessageDelivery,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::MessageInput;
use domain::crash_point;
use domain::event::Event;
use domain::id::{ConversationId, SandboxId};
use endpoint_guard::EndpointGuard;
use hyper::Method;
use serde_json::{Value, json};
use tracing::{Instrument, debug_span};
use url::Url;

use crate::config::Config;
use crate::errors::{CallError, malformed, secrets_of_launch, secrets_of_llm};
use crate::server_info::ServerInfo;
use crate::transport::{AgentAddress, AgentCall, AgentResponse, Transport};
use crate::{launch, mcp, plugins};

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
        let call = AgentCall::new(Method::GET, at, &["server_info"], self.config.read);
        ServerInfo::read(&self.fetch(&call).await?)
    }

    /// Sends a request and parses the response.
    pub(crate) async fn fetch(&self, call: &AgentCall<'_>) -> Result<Value, AgentError> {
        call.document(&self.transport.exchange(call).await?)
    }

    async fn launch(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let server = self.server_info(at).await?;
        // A conversation without one tool is better than no conversation. An MCP server that hangs fails every run at 1.34. At
        // 1.58 it costs half a minute and the tools of all MCP servers. A plugin that does not load fails every run at both.
        let (servers, plugins) = futures::join!(
            mcp::test_servers(&self.transport, at, request, self.config.probe),
            plugins::test_plugins(&self.transport, at, request, self.config.probe),
        );
        let mut notes = Vec::new();
        let servers = take_usable(servers, &mut notes);
        let plugins = take_usable(plugins, &mut notes);
        let (body, body_notes) = launch::body(request, &server, &servers, &plugins);
        notes.extend(body_notes);
        let path = ["api", "conversations"];
        let call = AgentCall::new(Method::POST, at, &path, self.config.start)
            .json(&body)
            .with_secrets(secrets_of_launch(request));
        let reply = self
            .exchange_with_crash_points("agent: creating the conversation", &call)
            .await?;
        let info = call.document(&reply)?;
        let mut conversation = AgentConversation::from_document(&info)
            .ok_or_else(|| malformed("the conversation has no valid id"))?;
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
        let rest = ["events"];
        let call = AgentCall::of_conversation(Method::POST, at, id, &rest, self.config.send)
            .json(&launch::message(message));
        let reply = self
            .exchange_with_crash_points("agent: sending a message", &call)
            .await?;
        match reply.status {
            429 => Ok(MessageDelivery::RunRefused),
            _ => call.check(&reply).map(|()| MessageDelivery::Delivered),
        }
    }

    /// An exchange that changes the state of the agent server, with crash points before and after it.
    pub(crate) async fn exchange_with_crash_points(
        &self,
        crash_point_name: &'static str,
        call: &AgentCall<'_>,
    ) -> Result<AgentResponse, CallError> {
        crash_point::before(crash_point_name);
        let outcome = self.transport.exchange(call).await;
        crash_point::after(crash_point_name);
        outcome
    }

    async fn fetch_event_page(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
        limit: &str,
    ) -> Result<Result<Value, AgentError>, CallError> {
        let rest = ["events", "search"];
        // The value `TIMESTAMP` selects the order of the log, which can differ from that of the timestamps.
        let mut call = AgentCall::of_conversation(Method::GET, at, id, &rest, self.config.read)
            .query("limit", limit)
            .query("sort_order", "TIMESTAMP");
        match (cursor, from) {
            (Some(cursor), _) => call = call.query("page_id", cursor),
            (None, Some(from)) => call = call.query("timestamp__gte", &from.to_string()),
            (None, None) => {}
        }
        let reply = self.transport.exchange(&call).await?;
        Ok(call.document(&reply))
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
        let rest = ["interrupt"];
        let call =
            AgentCall::of_conversation(Method::POST, at, id, &rest, self.config.stop).idempotent();
        let reply = self
            .exchange_with_crash_points("agent: interrupting", &call)
            .await?;
        match reply.status {
            // 1.34 answers 400 for an unknown id, and for no other reason.
            400 => Err(AgentError::NotFound),
            _ => call.check(&reply),
        }
    }

    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        let is_streaming = self.server_info(at).await?.hides_stream_fragments();
        let body = json!({"llm": launch::llm_with_digest(profile, &at.key, is_streaming)});
        let rest = ["switch_llm"];
        // Idempotent: the second request selects the entry of the first.
        let call = AgentCall::of_conversation(Method::POST, at, id, &rest, self.config.switch)
            .json(&body)
            .with_secrets(secrets_of_llm(&profile.llm))
            .idempotent();
        call.check(
            &self
                .exchange_with_crash_points("agent: switching the model", &call)
                .await?,
        )
    }

    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        let rest = ["switch_acp_model"];
        let call = AgentCall::of_conversation(Method::POST, at, id, &rest, self.config.switch)
            .json(&json!({"model": model}))
            .idempotent();
        call.check(
            &self
                .exchange_with_crash_points("agent: switching the model", &call)
                .await?,
        )
    }

    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        self.sync_profiles(at, profiles).await
    }

    async fn delete_conversation(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<(), AgentError> {
        let call = AgentCall::of_conversation(Method::DELETE, at, id, &[], self.config.stop);
        let reply = self
            .exchange_with_crash_points("agent: deleting a conversation", &call)
            .await?;
        match reply.status {
            // Unknown id: 400 from 1.34, 404 from 1.58.
            400 | 404 => Ok(()),
            _ => call.check(&reply),
        }
    }
}

#[async_trait]
impl AgentLifecycle for HttpAgentRuntime {
    async fn is_dormant(&self, sandbox: &SandboxId, url: &Url) -> Result<bool, AgentError> {
        self.waits_for_init(AgentAddress { sandbox, url }).await
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
        let limit = self.config.wake;
        let initialization = self
            .initialize(AgentAddress { sandbox, url }, init_request)
            .instrument(debug_span!("agent.wake"));
        let result = tokio::time::timeout(limit, initialization).await;
        result.unwrap_or(Err(AgentError::TimedOut(limit)))
    }

    async fn is_alive(&self, sandbox: &SandboxId, url: &Url) -> bool {
        let at = AgentAddress { sandbox, url };
        let call = AgentCall::without_key(Method::GET, at, &["alive"], self.config.alive);
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
            let path = ["api", "conversations"];
            let mut call = AgentCall::new(Method::GET, at, &path, self.config.read);
            for id in chunk {
                call = call.query("ids", &id.dashed());
            }
            let Value::Array(infos) = self.fetch(&call).await? else {
                return Err(malformed("the conversations are not a JSON list"));
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
        let mut page = Err(CallError::TooLarge(self.config.max_body_bytes));
        for limit in PAGE_SIZES {
            page = self.fetch_event_page(at, id, from, cursor, limit).await;
            if !matches!(page, Err(CallError::TooLarge(_))) {
                break;
            }
        }
        let mut page = page??;
        let Value::Array(items) = page["items"].take() else {
            return Err(malformed("the page of events has no list `items`"));
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
        let rest = ["events", "count"];
        let call = AgentCall::of_conversation(Method::GET, at, id, &rest, self.config.read);
        let count = self.fetch(&call).await?.as_u64();
        count.ok_or_else(|| malformed("the count of events is not a number"))
    }
}

/// The items that passed their tests. The others leave notes.
fn take_usable<T>(tested: Vec<Result<T, String>>, notes: &mut Vec<String>) -> Vec<T> {
    let usable = |result: Result<T, String>| result.map_err(|note| notes.push(note)).ok();
    tested.into_iter().filter_map(usable).collect()
}
