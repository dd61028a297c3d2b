//! Git providers and the MCP server.

pub(super) mod git;
pub(super) mod mcp;
