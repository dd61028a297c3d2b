//! A program that is an agent, for agents that agent servers run over ACP. It needs nothing but Python, which agent servers
//! and images have on their path, so it can be started in every sandbox by its text.

/// The program.
const AGENT: &str = include_str!("agent.py");

/// Its command: the settings' `acp_command`.
#[must_use]
pub fn command() -> [&'static str; 3] {
    ["python3", "-c", AGENT]
}
