//! Limits of requests to agent servers.

use std::time::Duration;

/// Returns the headers that name the trace of the current span, as pairs of name and value.
pub type TraceHeaderSource = fn() -> Vec<(&'static str, String)>;

/// Deadlines and sizes. Each deadline covers a whole exchange: connecting, sending, and reading the response.
#[derive(Debug, Clone)]
pub struct Config {
    /// Establishing a connection.
    pub connect: Duration,
    /// `/alive`. A paused sandbox accepts connections and never responds.
    pub alive: Duration,
    /// Initializing a dormant agent server. It takes milliseconds, or longer with many stored conversations.
    pub wake: Duration,
    /// Reads: conversations, events, counts, files, and the server's version.
    pub read: Duration,
    /// Creating a conversation. The agent server prepares the agent and may start MCP servers before it responds.
    pub start: Duration,
    /// Testing all MCP servers before a start, and testing one plugin. All plugins together may take three times as long.
    pub probe: Duration,
    /// Sending a message, or writing a file.
    pub send: Duration,
    /// Git changes and diffs of a repository.
    pub git: Duration,
    /// Switching a conversation's model. An agent server first waits for the agent's current step, or for the ACP program.
    pub switch: Duration,
    /// Interrupting a conversation, or deleting it or a profile.
    pub stop: Duration,
    /// Largest response body, in bytes.
    pub max_body_bytes: usize,
    /// Trace headers of every request; `None` if no traces are exported.
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
            max_body_bytes: 32 << 20,
            trace: None,
        }
    }
}
