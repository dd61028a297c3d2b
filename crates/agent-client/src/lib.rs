//! The agent server's HTTP protocol: [`HttpAgentRuntime`] implements the ports of [`domain::agent`].
//!
//! [`AutomationsClient`] reads from the automations service.
//!
//! Knows: the routes, documents and quirks of the agent server from 1.34.0 to 1.58.x (`docs/explanation/agent-server.md` lists
//! observations), one connection pool, and the deadline and size of every exchange.
//! Must never know: users, stores, sandbox backends, or the purpose of a call. Its only retry is one repetition of an
//! idempotent request whose connection broke.

mod automations;
mod config;
mod dormant;
mod errors;
mod launch;
mod mcp;
mod models;
mod plugins;
mod probe;
mod runtime;
mod server_info;
mod transport;
mod workspace;

pub use automations::AutomationsClient;
pub use config::{Config, TraceHeaderSource};
pub use probe::{ProbeResponse, probe};
pub use runtime::HttpAgentRuntime;
