//! MCP servers in their two forms: the typed lists of the legacy operations, and the opaque `mcp_config` of the agent
//! document. The agent gets both.
//!
//! A mask in a request keeps the stored secret, but only of the same server: a remote server with the same URL, or a
//! process with the same name. A mask without a stored secret means none.

mod agent_servers;
mod opaque_config;
mod server_url;
mod typed_config;

pub(super) use agent_servers::for_agent;
pub(super) use opaque_config::{
    first_server_with_credentials, masked as masked_opaque, masked_members, merge_servers,
    unmask as unmask_opaque, with_masks_restored,
};
pub use server_url::has_credentials;
pub use typed_config::{McpConfig, McpRemote, McpStdio};
