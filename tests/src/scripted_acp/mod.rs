//! A program that is an agent, for agents that agent servers run over ACP. It needs nothing but the Python that an agent
//! server runs on, so it can be started in every sandbox by its text.

/// The program.
const AGENT: &str = include_str!("agent.py");

/// Its command: the settings' `acp_command`. The images of the suites have their Python beside the path.
#[must_use]
pub fn command() -> [&'static str; 5] {
    ["sh", "-c", PYTHON, "scripted-acp", AGENT]
}

/// Runs its first argument.
pub(crate) const PYTHON: &str = "PATH=\"$PATH:/opt/agent-server/bin\"; exec python3 -c \"$1\"";
