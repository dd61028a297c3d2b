//! Git providers, the MCP server and the automations service.

pub(super) mod automations;
pub(super) mod git;
pub(super) mod mcp;
