//! Limits of the conversation with agent servers.

use std::time::Duration;

/// Headers that name the trace of the current span, by name and value.
pub type TraceHeaders = fn() -> Vec<(&'static str, String)>;

/// Deadlines and sizes. Each deadline covers a whole exchange: connecting, sending, and reading the answer.
#[derive(Debug, Clone)]
pub struct Config {
    /// Establishing a connection.
    pub connect: Duration,
    /// `/alive`: a paused sandbox accepts connections and never answers.
    pub alive: Duration,
    /// Waking a dormant one. It takes milliseconds, and more where many conversations are to be read.
    pub wake: Duration,
    /// Reading: infos, events, counts, the server's version.
    pub read: Duration,
    /// Creating a conversation (the agent server prepares the agent and may start MCP servers before it answers).
    pub start: Duration,
    /// Trying all MCP servers and plugins before a start.
    pub probe: Duration,
    /// Sending a message.
    pub send: Duration,
    /// What git says of a repository.
    pub git: Duration,
    /// Another model for a conversation: an agent server waits for the step that its agent is at, or for the program that is
    /// the agent.
    pub switch: Duration,
    /// Interrupting or deleting.
    pub stop: Duration,
    /// Largest answer that is read, in bytes.
    pub max_body: usize,
    /// Headers that name the trace of the current span, for every request; `None` where no traces are exported.
    pub trace: Option<TraceHeaders>,
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
