//! Kinds of agents.

use crate::wire_enum::wire_enum;

wire_enum! {
    /// What the agent is.
    #[derive(Default)]
    AgentKind {
        /// The agent server's own agent, which calls a language model.
        #[default]
        OpenHands = "openhands",
        /// An external program that speaks the Agent Client Protocol.
        Acp = "acp",
    }
}
