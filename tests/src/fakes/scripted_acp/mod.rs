//! A scripted agent that speaks ACP. Its command contains the program's text and needs only Python, so every sandbox can run it.

const AGENT: &str = include_str!("agent.py");

/// The value of the setting `acp_command`.
#[must_use]
pub fn command() -> [&'static str; 3] {
    ["python3", "-c", AGENT]
}
