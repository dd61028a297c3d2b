//! The agent server inside a sandbox, as the application uses it.

pub mod document;
pub(crate) mod kind;
pub mod model_endpoint;
pub mod spending;
pub mod workspace;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::conversation::{ExecutionStatus, MessageInput, Metrics};
use crate::error::{BoxError, Classify, ErrorClass};
use crate::event::Event;
use crate::id::{ConversationId, SandboxId};
use crate::start_task::AgentType;

pub use self::kind::AgentKind;

/// The address of an agent server and the key that it requires.
#[derive(Debug, Clone)]
pub struct AgentEndpoint {
    /// The sandbox that must hold the listening socket.
    pub sandbox: SandboxId,
    pub url: Url,
    /// `X-Session-API-Key`.
    pub key: SecretString,
}

/// The language model of an agent.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// litellm's model name, e.g. `openai/gpt-5`.
    pub model: String,
    /// Endpoint, if not the provider's own.
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
    /// Further options of the `LLM` document that the user set; none of them is secret.
    pub options: Map<String, Value>,
    /// Further secret options (`aws_secret_access_key`, …).
    pub secret_options: BTreeMap<String, SecretString>,
}

#[derive(Debug, Clone)]
pub enum McpServer {
    Remote {
        name: String,
        url: String,
        api_key: Option<SecretString>,
        /// Server-sent events instead of streamable HTTP.
        sse: bool,
        /// Seconds.
        timeout: Option<u64>,
    },
    Stdio {
        name: String,
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, SecretString>,
    },
}

impl McpServer {
    pub fn name(&self) -> &str {
        match self {
            Self::Remote { name, .. } | Self::Stdio { name, .. } => name,
        }
    }
}

/// The condenser, which summarises a long history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondenserConfig {
    /// Number of events from which on it condenses.
    pub max_size: u32,
    pub keep_first: u32,
}

/// A secret of a conversation. A command of the agent that names it gets it as an environment variable.
#[derive(Debug, Clone)]
pub enum LaunchSecret {
    Value(SecretString),
    /// The agent server requests the value each time it needs it, so that a running sandbox sees changes.
    LookUp {
        /// Address that returns the value as plain text.
        url: Url,
        /// Headers of the request; their values are secret.
        headers: BTreeMap<String, SecretString>,
        description: Option<String>,
    },
}

/// An external agent program that speaks ACP (Agent Client Protocol) with the agent server.
#[derive(Debug, Clone, PartialEq)]
pub struct AcpAgent {
    /// A preset (`claude-code`, `codex`, `gemini-cli`), or `custom`.
    pub server: String,
    /// The program and its arguments, if they differ from the preset.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub model: Option<String>,
    pub session_mode: Option<String>,
    /// Maximum length of a turn, in seconds.
    pub prompt_timeout: Option<f64>,
    /// Further options of the agent's document that the user set; none of them is secret.
    pub options: Map<String, Value>,
}

/// A plugin to load. `docs/reference/wire/conversations.md` describes its fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    /// `github:owner/repo`, a git URL, or a path.
    pub source: String,
    /// Branch, tag or commit.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Directory inside the repository.
    pub repo_path: Option<String>,
    pub parameters: Option<Map<String, Value>>,
}

/// A tool of the agent, by the agent server's name for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTool {
    /// `terminal`, `file_editor`, …
    pub name: String,
    pub params: Map<String, Value>,
}

/// A conversation to start. The adapter builds the body for the version of the agent server.
#[derive(Debug, Clone)]
pub struct LaunchRequest {
    pub conversation_id: ConversationId,
    pub working_dir: String,
    pub llm: LlmConfig,
    pub condenser: Option<CondenserConfig>,
    pub max_iterations: Option<u32>,
    /// Whether risky actions need a confirmation.
    pub confirmation_mode: bool,
    /// `llm`, another analyzer's name, or none.
    pub security_analyzer: Option<String>,
    pub mcp: Vec<McpServer>,
    /// Key of the search service (Tavily) for the agent's search tool.
    pub search_api_key: Option<SecretString>,
    /// Appended to the system prompt.
    pub system_message_suffix: Option<String>,
    /// First message; it makes the agent run.
    pub initial_message: Option<MessageInput>,
    pub secrets: BTreeMap<String, LaunchSecret>,
    /// Whether the agent server generates a title.
    pub auto_title: bool,
    /// The model profile, sent by [`AgentRuntime::seed_profiles`], whose model writes the title; `None`: the agent's model.
    pub title_profile: Option<String>,
    pub agent_type: AgentType,
    /// The coding agent's tools; `None` means the default ones. The planning agent has its own.
    pub tools: Option<Vec<AgentTool>>,
    /// Whether the coding agent may delegate tasks to sub-agents.
    pub sub_agents: bool,
    /// Absolute path of the planning agent's document; `None` leaves it to the agent server.
    pub plan_path: Option<String>,
    /// The external agent program that replaces the agent server's own agent.
    pub acp: Option<AcpAgent>,
    pub plugins: Vec<Plugin>,
    /// The project's agent hooks, as [`SandboxWorkspace::hooks`](crate::agent::workspace::SandboxWorkspace::hooks) returns
    /// them.
    pub hooks: Option<Value>,
    pub disabled_skills: Vec<String>,
    pub tags: BTreeMap<String, String>,
    /// Budget in US dollars.
    pub max_budget: Option<f64>,
}

/// The state of a conversation, as an agent server reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConversation {
    pub id: ConversationId,
    /// Status; `None` if the reported one is not known.
    pub execution_status: Option<ExecutionStatus>,
    pub title: Option<String>,
    pub metrics: Option<Metrics>,
    pub llm_model: Option<String>,
    pub agent_kind: AgentKind,
    pub tags: BTreeMap<String, String>,
    pub updated_at: Option<crate::clock::Timestamp>,
    /// What the start left out or changed (an MCP server that does not answer), for the user.
    pub notes: Vec<String>,
}

/// One page of the agent server's event log, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEventPage {
    /// The readable events; an item without a usable id is left out.
    pub items: Vec<Event>,
    /// The agent server's cursor for the next page.
    pub next: Option<String>,
}

#[derive(Debug, Clone)]
pub struct LlmProfile {
    pub name: String,
    pub llm: LlmConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageDelivery {
    /// Delivered. The agent runs if the message asked for it.
    Delivered,
    /// Saved, but the agent server refused the run: the sandbox has reached its limit of concurrent runs (status 429).
    RunRefused,
}

/// Maximum delay of a report after its event, in seconds. It is set in every agent server's environment or init
/// request.
pub const WEBHOOK_FLUSH_SECONDS: u8 = 1;
/// Maximum number of events in one report; set in the same places.
pub const WEBHOOK_BATCH: u8 = 5;

/// The configuration that wakes a dormant agent server.
#[derive(Debug, Clone)]
pub struct InitRequest {
    /// The session key that the agent server requires from then on.
    pub session_key: SecretString,
    /// The agent server's encryption key. It also authenticates this request.
    pub secret_key: SecretString,
    /// Base URL of the webhooks, as the sandbox reaches the service.
    pub webhook_url: Url,
    pub cors_origins: Vec<String>,
}

/// Conversations of agent servers. The adapter gives every call a deadline and limits the size of responses. Where the
/// platform allows it, the adapter proves that the sandbox owns the connection before it sends anything; until then
/// calls return [`AgentError::Unreachable`].
#[async_trait]
pub trait AgentRuntime: Send + Sync + 'static {
    /// Starts a conversation. If one with this id exists, returns it without another start or message.
    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError>;
    /// Sends a message. The adapter never retries it.
    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError>;
    /// Stops the run at once, also during a model call. `Ok` if nothing runs.
    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError>;
    /// Makes the conversation use the model of a profile from its next model call on.
    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError>;
    /// Makes the external agent program of the conversation use another model.
    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError>;
    /// Replaces the agent server's list of profiles.
    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError>;
    /// Deletes the conversation in the agent server. `Ok` if it is not there.
    async fn delete_conversation(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<(), AgentError>;
}

/// Boot and health of agent servers. The obligations of [`AgentRuntime`] apply.
#[async_trait]
pub trait AgentLifecycle: Send + Sync + 'static {
    /// Whether `/alive` answers 2xx within a short time. Any failure is `false`.
    async fn is_alive(&self, sandbox: &SandboxId, url: &Url) -> bool;
    /// Whether the agent server is dormant, that is, waits for its [`InitRequest`]. `false` if it does not support
    /// that.
    async fn is_dormant(&self, sandbox: &SandboxId, url: &Url) -> Result<bool, AgentError>;
    /// Makes a dormant agent server do work that its first requests would otherwise do, without leaving a trace in it.
    /// It may take seconds. Failures are ignored, because the first requests then do the work.
    async fn prewarm(&self, sandbox: &SandboxId, url: &Url);
    /// Initialises a dormant agent server; takes some milliseconds. `Ok` if it is awake already.
    async fn wake(
        &self,
        sandbox: &SandboxId,
        url: &Url,
        init: &InitRequest,
    ) -> Result<(), AgentError>;
    /// Time since the last request other than a health check (`idle_time` of `/server_info`); `None` if the agent
    /// server does not report it.
    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError>;
    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError>;
}

/// What agent servers know about conversations. The obligations of [`AgentRuntime`] apply.
#[async_trait]
pub trait AgentConversationReader: Send + Sync + 'static {
    /// Several conversations, in the order of `ids`; `None` for unknown ones.
    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError>;
    /// A page of at most 100 events, oldest first, from `cursor` on; without a cursor, from the first event at or after
    /// `from`. `NotFound` if the agent server does not have the conversation.
    async fn events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<crate::clock::Timestamp>,
        cursor: Option<&str>,
    ) -> Result<AgentEventPage, AgentError>;
    /// Number of events in the log of a conversation.
    async fn count_events(&self, at: &AgentEndpoint, id: ConversationId)
    -> Result<u64, AgentError>;
}

/// Failure of an agent server. No text contains a key; `public` contains no internal address either.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("agent server unreachable")]
    Unreachable(#[source] BoxError),
    #[error("agent server did not answer within {}s", .0.as_secs())]
    TimedOut(Duration),
    /// The agent server does not have the conversation.
    #[error("agent server does not know the conversation")]
    NotFound,
    #[error("agent server answered {status}: {reason}")]
    Rejected {
        status: u16,
        /// Its `detail`, at most 500 characters, without keys.
        reason: String,
    },
    /// The response is not usable, or too large.
    #[error("agent server returned an unusable response: {0}")]
    Malformed(String),
}

impl Classify for AgentError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound => ErrorClass::NotFound,
            _ => ErrorClass::Upstream,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) => "Failed to reach agent server.".into(),
            Self::NotFound => "The agent server does not know this conversation.".into(),
            Self::Rejected { status, .. } => format!("Agent server error: {status}").into(),
            Self::Malformed(_) => "Agent server returned unexpected response.".into(),
        }
    }
}
