//! Test harness of the black-box suites: the real binary, real or stub agent servers, a scripted model.
//!
//! It knows the service as a program and over HTTP, processes through `/proc`, and containers through Docker's own
//! program. It must never know our crates, but for the one that others write clients with.

pub mod agent_server;
pub mod canaries;
pub mod client;
pub mod engine;
pub mod figures;
pub mod git_server;
pub mod hostile;
pub mod postgres;
pub mod processes;
pub mod proxy;
pub mod scripted_acp;
pub mod scripted_llm;
pub mod scripted_mcp;
pub mod service;
pub mod stub;
pub mod wait;
pub mod world;

pub use agent_server::Version;
pub use client::Client;
pub use engine::{Engine, PrivateEngine};
pub use git_server::GitServer;
pub use postgres::Postgres;
pub use scripted_llm::ScriptedLlm;
pub use scripted_mcp::ScriptedMcp;
pub use service::{Builder, Sandboxing, Service};
pub use stub::Stub;
pub use world::World;

/// Tells the person who watches the suites something; never a condition of a test.
pub fn print_line(text: &str) {
    use std::io::Write as _;
    // Nobody watches when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
