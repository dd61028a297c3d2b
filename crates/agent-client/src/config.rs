//! Limits of requests to agent servers.

use std::time::Duration;

/// Headers that name the trace of the current span, by name and value.
pub type TraceHeaderSource = fn() -> Vec<(&'static str, String)>;

/// Deadlines and sizes. Each deadline covers a whole exchange: connecting, sending, and reading the answer.
#[derive(Debug, Clone)]
pub struct Config {
    /// Establishing a connection.
    pub connect: Duration,
    /// `/alive`: a paused sandbox accepts connections and never answers.
    pub alive: Duration,
    /// Initializing a dormant agent server. It takes milliseconds, or longer with many stored conversations.
    pub wake: Duration,
    /// Reading: infos, events, counts, the server's version.
    pub read: Duration,
    /// Creating a conversation (the agent server prepares the agent and may start MCP servers before it answers).
    pub start: Duration,
    /// Testing all MCP servers and plugins before a start.
    pub probe: Duration,
    /// Sending a message.
    pub send: Duration,
    /// Git changes and diffs of a repository.
    pub git: Duration,
    /// Switching a conversation's model. An agent server first waits for the agent's current step, or for the ACP program.
    pub switch: Duration,
    /// Interrupting or deleting.
    pub stop: Duration,
    /// Largest response body, in bytes.
    pub max_body: usize,
    /// Headers that name the trace of the current span, for every request; `None` where no traces are exported.
    pub trace: Option<TraceHeaderSource>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            alive: Duration::from_secs(2),
            wake: Duration::from_secs(30),
            read: Duration::from_secs(15),
            start: Duration::from_secs(60),
            probe: Duration::from_secs(20),
            send: Duration::from_secs(30),
            git: Duration::from_secs(30),
            switch: Duration::from_secs(30),
            stop: Duration::from_secs(15),
            max_body: 32 << 20,
            trace: None,
        }
    }
}
