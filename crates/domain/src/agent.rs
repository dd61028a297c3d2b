//! The agent server inside a sandbox, as the application needs it.

pub mod document;

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

/// Where an agent server answers, and the key it asks for.
#[derive(Debug, Clone)]
pub struct AgentEndpoint {
    /// The sandbox that must hold the socket which listens there.
    pub sandbox: SandboxId,
    /// Base URL.
    pub url: Url,
    /// `X-Session-API-Key`.
    pub key: SecretString,
}

/// The language model of an agent.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// litellm's model name, e.g. `openai/gpt-5`.
    pub model: String,
    /// Endpoint, when not the provider's own.
    pub base_url: Option<String>,
    /// Key.
    pub api_key: Option<SecretString>,
    /// Further options of the agent side's `LLM` document that the user set (never secret ones).
    pub options: Map<String, Value>,
    /// Further secret options (`aws_secret_access_key`, …).
    pub secret_options: BTreeMap<String, SecretString>,
}

/// An MCP server for the agent.
#[derive(Debug, Clone)]
pub enum McpServer {
    /// Reached over HTTP.
    Remote {
        /// Name in the agent's list.
        name: String,
        /// Where.
        url: String,
        /// Bearer key.
        api_key: Option<SecretString>,
        /// Server-sent events instead of streamable HTTP.
        sse: bool,
        /// Seconds.
        timeout: Option<u64>,
    },
    /// A process in the sandbox.
    Stdio {
        /// Name in the agent's list.
        name: String,
        /// Program.
        command: String,
        /// Arguments.
        args: Vec<String>,
        /// Environment.
        env: BTreeMap<String, SecretString>,
    },
}

/// Condenser of a long history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondenserConfig {
    /// Events before it condenses.
    pub max_size: u32,
    /// Events kept at the start.
    pub keep_first: u32,
}

/// A secret of a conversation: commands of the agent that name it get it as an environment variable.
#[derive(Debug, Clone)]
pub enum LaunchSecret {
    /// The value itself, as it is at the start.
    Value(SecretString),
    /// The agent server asks for the value whenever it is needed, so that a change reaches a live sandbox.
    LookUp {
        /// Where; answers the value as plain text.
        url: Url,
        /// Headers of the request; their values are secret.
        headers: BTreeMap<String, SecretString>,
        /// What it is for.
        description: Option<String>,
    },
}

/// An agent that is a program of its own and speaks ACP (Agent Client Protocol) with the agent server.
#[derive(Debug, Clone, PartialEq)]
pub struct AcpAgent {
    /// A known one (`claude-code`, `codex`, `gemini-cli`), or `custom`.
    pub server: String,
    /// The program and its arguments, when not the known one's own.
    pub command: Vec<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its session mode.
    pub session_mode: Option<String>,
    /// Longest turn in seconds.
    pub prompt_timeout: Option<f64>,
    /// Further options of the agent side's document that the user set (never secret ones).
    pub options: Map<String, Value>,
}

/// A plugin to load: contract v1, section 2 (`PluginSpec`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    /// `github:owner/repo`, a git URL, or a path.
    pub source: String,
    /// Branch, tag or commit.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Directory inside the repository.
    pub repo_path: Option<String>,
    /// Values for its parameters.
    pub parameters: Option<Map<String, Value>>,
}

/// A tool of the agent, by the agent server's own name for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTool {
    /// `terminal`, `file_editor`, …
    pub name: String,
    /// Its parameters.
    pub params: Map<String, Value>,
}

/// What to start. The adapter builds the body for the agent server's version.
#[derive(Debug, Clone)]
pub struct LaunchRequest {
    /// Id to use.
    pub conversation_id: ConversationId,
    /// Absolute directory inside the sandbox.
    pub working_dir: String,
    /// Model.
    pub llm: LlmConfig,
    /// Condenser; `None` switches it off.
    pub condenser: Option<CondenserConfig>,
    /// Iterations per run.
    pub max_iterations: Option<u32>,
    /// Ask before every risky action.
    pub confirmation_mode: bool,
    /// `llm`, another analyzer's name, or none.
    pub security_analyzer: Option<String>,
    /// MCP servers.
    pub mcp: Vec<McpServer>,
    /// Key of the search service (Tavily), for the agent's search tool.
    pub search_api_key: Option<SecretString>,
    /// Appended to the system prompt.
    pub system_message_suffix: Option<String>,
    /// First message; starts the agent.
    pub initial_message: Option<MessageInput>,
    /// Secrets of the conversation.
    pub secrets: BTreeMap<String, LaunchSecret>,
    /// Whether the agent server shall make a title.
    pub auto_title: bool,
    /// Which agent.
    pub agent_type: AgentType,
    /// The coding agent's tools; `None`: the usual ones. The planning agent has its own.
    pub tools: Option<Vec<AgentTool>>,
    /// Whether the coding agent may hand tasks to agents of its own.
    pub sub_agents: bool,
    /// Absolute path of the planning agent's document; `None` leaves it to the agent server.
    pub plan_path: Option<String>,
    /// A program that is the agent, instead of the agent server's own.
    pub acp: Option<AcpAgent>,
    /// Plugins.
    pub plugins: Vec<Plugin>,
    /// The project's agent hooks, as [`SandboxWorkspace::hooks`](crate::workspace::SandboxWorkspace::hooks) read them.
    pub hooks: Option<Value>,
    /// Names of skills that are not to be loaded.
    pub disabled_skills: Vec<String>,
    /// Labels.
    pub tags: BTreeMap<String, String>,
    /// Budget in US dollars.
    pub max_budget: Option<f64>,
}

/// What an agent server says about a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConversation {
    /// Its id.
    pub id: ConversationId,
    /// State; `None` if it says something we do not know.
    pub execution_status: Option<ExecutionStatus>,
    /// Title.
    pub title: Option<String>,
    /// Totals.
    pub metrics: Option<Metrics>,
    /// Model in use.
    pub llm_model: Option<String>,
    /// `openhands` or `acp`.
    pub agent_kind: String,
    /// Labels.
    pub tags: BTreeMap<String, String>,
    /// When it last changed.
    pub updated_at: Option<crate::clock::Timestamp>,
    /// What did not go as asked when it was started (an MCP server left out), for the person who asked.
    pub notes: Vec<String>,
}

/// One page of the agent server's log, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEventPage {
    /// Events that could be read (an item without a usable id is left out).
    pub items: Vec<Event>,
    /// The agent server's own cursor for the next page.
    pub next: Option<String>,
}

/// A model that a user keeps under a name.
#[derive(Debug, Clone)]
pub struct LlmProfile {
    /// The name.
    pub name: String,
    /// The model.
    pub llm: LlmConfig,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageDelivery {
    /// Delivered, and running if asked to.
    Delivered,
    /// Saved, but the run was refused because the sandbox is at its limit of concurrent runs (429 of newer versions).
    RunRefused,
}

/// Seconds after an event at which it is reported at the latest, where nothing is in the way. Set in every agent server's
/// environment, or told when it is woken.
pub const WEBHOOK_FLUSH_SECONDS: u8 = 1;
/// Events in one report; set in the same places.
pub const WEBHOOK_BATCH: u8 = 5;

/// What a dormant agent server is told to wake up with.
#[derive(Debug, Clone)]
pub struct InitRequest {
    /// The key that it asks for from then on.
    pub session_key: SecretString,
    /// Its encryption key, by which it also knows that it is us.
    pub secret_key: SecretString,
    /// Base of the webhooks as the sandbox reaches us.
    pub webhook_url: Url,
    /// Origins that browsers may come from.
    pub cors_origins: Vec<String>,
}

/// The agent server's protocol. Every call has a deadline of the adapter's own and reads a bounded answer. Nothing is sent over a
/// connection before it is proven that this sandbox has accepted it, where that can be proven: until then the agent server is
/// [`AgentError::Unreachable`].
#[async_trait]
pub trait AgentRuntime: Send + Sync + 'static {
    /// Whether `/alive` answers 2xx within a short time. Any failure is `false`.
    async fn is_alive(&self, sandbox: &SandboxId, url: &Url) -> bool;
    /// Whether it was booted dormant and waits to be told who it is. `false` for one that cannot be.
    async fn is_dormant(&self, sandbox: &SandboxId, url: &Url) -> Result<bool, AgentError>;
    /// Has a dormant one do beforehand what it would only do at its first requests, as far as that can be had by asking, and
    /// without a trace in it. May take seconds. Whatever fails is left to the first requests.
    async fn prewarm(&self, sandbox: &SandboxId, url: &Url);
    /// Tells a dormant one who it is; takes some milliseconds. `Ok` if it is awake already.
    async fn wake(
        &self,
        sandbox: &SandboxId,
        url: &Url,
        awakening: &InitRequest,
    ) -> Result<(), AgentError>;
    /// How long nobody has asked it for anything but its health (`idle_time` of `/server_info`); `None` if it does not say.
    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError>;
    /// Version of the agent server.
    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError>;
    /// Starts a conversation, or finds the one with this id (then nothing is said or started twice).
    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError>;
    /// Several conversations, in the order asked for; `None` for those it does not have.
    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError>;
    /// A page of the log, oldest first, from `cursor` (or, without one, from the first event at or after `from`), at
    /// most 100 items. `NotFound` if it does not have the conversation.
    async fn events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<crate::clock::Timestamp>,
        cursor: Option<&str>,
    ) -> Result<AgentEventPage, AgentError>;
    /// Number of events in its log.
    async fn count_events(&self, at: &AgentEndpoint, id: ConversationId)
    -> Result<u64, AgentError>;
    /// Says something. Never retried by itself.
    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError>;
    /// Stops the run at once (also in the middle of a model call). `Ok` if nothing runs.
    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError>;
    /// The conversation goes on with the model of a profile, from its next call on.
    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError>;
    /// The program that is the conversation's agent goes on with another model of its own.
    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError>;
    /// Makes the agent server's own list of profiles this one.
    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError>;
    /// Deletes the conversation there. `Ok` if it is not there.
    async fn delete_conversation(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError>;
}

/// Failure of an agent server. Nothing here shows a key; `public` shows no internal address either.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No connection, or it broke.
    #[error("agent server unreachable")]
    Unreachable(#[source] BoxError),
    /// No answer within the deadline.
    #[error("agent server did not answer within {}s", .0.as_secs())]
    TimedOut(Duration),
    /// It does not have the conversation.
    #[error("agent server does not know the conversation")]
    NotFound,
    /// It refused: status and a short, scrubbed reason.
    #[error("agent server answered {status}: {reason}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// Its `detail`, at most 500 characters, without keys.
        reason: String,
    },
    /// The answer makes no sense (or is too large).
    #[error("agent server answered nonsense: {0}")]
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
