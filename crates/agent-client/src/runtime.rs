//! The port, call by call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentEndpoint, AgentError, AgentEvents, AgentRuntime, LaunchRequest, Sent,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::MessageInput;
use domain::event::Event;
use domain::id::ConversationId;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tracing::{Instrument, debug_span, warn};
use url::Url;

use crate::config::Config;
use crate::fault::{Fault, Scrubber, refused};
use crate::launch::{self, McpEntry};
use crate::server_info::ServerInfo;
use crate::transport::{Call, Reply, Transport};

/// Ids asked for at once: the agent server refuses 100, and an info carries the whole agent and its statistics.
const IDS_PER_CALL: usize = 20;
/// Page sizes tried in turn when a page is larger than we read: the agent server bounds neither events nor pages.
const PAGE_SIZES: [&str; 3] = ["100", "10", "1"];

/// [`AgentRuntime`] over one shared HTTP client.
pub struct HttpAgentRuntime {
    transport: Transport,
    config: Config,
    clock: Arc<dyn Clock>,
}

impl HttpAgentRuntime {
    /// Builds the client; `clock` dates events that carry no readable time.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Result<Self, reqwest::Error> {
        Ok(Self {
            transport: Transport::new(&config)?,
            config,
            clock,
        })
    }

    async fn server_info(&self, at: &AgentEndpoint) -> Result<ServerInfo, AgentError> {
        let call = Call::new(Method::GET, at, &["server_info"], self.config.read)?;
        let reply = self.transport.exchange(&call).await?;
        ServerInfo::read(&document(&reply, &Scrubber::of_key(&at.key))?)
    }

    /// The MCP servers that answer, in their order. An old agent server refuses every run of a conversation that has one
    /// which does not, and the user's work matters more than one tool.
    /// Returns them with a note for each that is left out.
    async fn usable(
        &self,
        at: &AgentEndpoint,
        entries: Vec<McpEntry>,
    ) -> (Vec<McpEntry>, Vec<String>) {
        let probes = entries
            .into_iter()
            .map(|entry| async { (self.answers(at, &entry).await, entry) });
        let (good, bad): (Vec<_>, Vec<_>) =
            join_all(probes).await.into_iter().partition(|(ok, _)| *ok);
        let notes = bad.into_iter().map(|(_, entry)| {
            warn!(
                mcp.server = entry.name,
                "MCP server does not answer; starting without it"
            );
            format!(
                "MCP server {} does not answer; the conversation was started without it.",
                entry.name
            )
        });
        (
            good.into_iter().map(|(_, entry)| entry).collect(),
            notes.collect(),
        )
    }

    async fn answers(&self, at: &AgentEndpoint, entry: &McpEntry) -> bool {
        let Ok(call) = Call::new(Method::POST, at, &["api", "mcp", "test"], self.config.probe)
        else {
            return false;
        };
        let patience = self.config.probe.as_secs_f64() * 0.9;
        let body = json!({"server": entry.document, "timeout": patience});
        match self
            .transport
            .exchange(&call.json(&body).idempotent())
            .await
        {
            Ok(reply) if reply.is_success() => {
                let verdict: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
                verdict["ok"] == true
            }
            // A server too old for this route tells us nothing.
            Ok(reply) => matches!(reply.status, 404 | 405),
            Err(_) => false,
        }
    }

    async fn launch(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        let server = self.server_info(at).await?;
        let mut mcp = launch::mcp_entries(request);
        let mut notes = Vec::new();
        if !server.is_tolerant() {
            (mcp, notes) = self.usable(at, mcp).await;
        }
        let call = Call::new(
            Method::POST,
            at,
            &["api", "conversations"],
            self.config.start,
        )?
        .json(&launch::body(request, &server, &mcp));
        let reply = self.transport.exchange(&call).await?;
        let info = document(&reply, &Scrubber::of_launch(&at.key, request))?;
        let mut conversation = conversation(&info)?;
        conversation.notes = notes;
        // A start that died half way leaves a conversation to which nothing was said; the agent server then only
        // returns it. Where it does not tell, assume that the message is there: nothing may be said twice.
        let silent = info.get("last_user_message_id") == Some(&Value::Null);
        if let Some(first) = &request.initial_message
            && reply.status == 200
            && silent
            && self.say(at, request.conversation_id, first).await? == Sent::RunRefused
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
    ) -> Result<Sent, AgentError> {
        let call = of_conversation(Method::POST, at, id, &["events"], self.config.send)?;
        let reply = self
            .transport
            .exchange(&call.json(&launch::message(message)))
            .await?;
        match reply.status {
            429 => Ok(Sent::RunRefused),
            _ if reply.is_success() => Ok(Sent::Delivered),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }

    async fn page(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
        limit: &str,
    ) -> Result<Reply, Fault> {
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
    async fn alive(&self, url: &Url) -> bool {
        let call = Call::open(Method::GET, url, &["alive"], self.config.alive);
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
            let mut call = Call::new(Method::GET, at, &["api", "conversations"], self.config.read)?;
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
    ) -> Result<AgentEvents, AgentError> {
        let mut reply = Err(Fault::TooLarge(self.config.max_body));
        for limit in PAGE_SIZES {
            reply = self.page(at, id, from, cursor, limit).await;
            if !matches!(reply, Err(Fault::TooLarge(_))) {
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
        Ok(AgentEvents {
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
    ) -> Result<Sent, AgentError> {
        let span = debug_span!("agent.send", conversation.id = %id);
        self.say(at, id, message).instrument(span).await
    }

    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        let call = of_conversation(Method::POST, at, id, &["interrupt"], self.config.stop)?;
        let reply = self.transport.exchange(&call.idempotent()).await?;
        match reply.status {
            _ if reply.is_success() => Ok(()),
            // 1.34 answers 400 and nothing else to an id it does not have.
            400 => Err(AgentError::NotFound),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }

    async fn forget(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        let call = of_conversation(Method::DELETE, at, id, &[], self.config.stop)?;
        let reply = self.transport.exchange(&call).await?;
        match reply.status {
            _ if reply.is_success() => Ok(()),
            // Not there: 400 from 1.34, 404 from 1.58.
            400 | 404 => Ok(()),
            status => Err(refused(status, &reply.body, &Scrubber::of_key(&at.key))),
        }
    }
}

/// A call to `/api/conversations/{id}/…`.
fn of_conversation(
    method: Method,
    at: &AgentEndpoint,
    id: ConversationId,
    rest: &[&str],
    deadline: Duration,
) -> Result<Call, Fault> {
    let id = id.dashed();
    let segments = [&["api", "conversations", &id], rest].concat();
    Call::new(method, at, &segments, deadline)
}

fn document(reply: &Reply, scrub: &Scrubber<'_>) -> Result<Value, AgentError> {
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
