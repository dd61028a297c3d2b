//! Servers and programs that stand in for those of other makers.

pub mod git_server;
pub mod scripted_acp;
pub mod scripted_llm;
pub mod scripted_mcp;
pub mod stub;
