//! Test harness of the black-box suites: the real binary, real or stub agent servers, a scripted model.
//!
//! It uses the service as a program and over HTTP, processes through `/proc`, and containers through Docker's own program. It
//! depends on no other crate of the workspace than `client` and `fake-kubernetes`.

pub mod agent_server;
pub mod browser;
pub mod canaries;
pub mod client;
pub mod fakes;
pub mod figures;
pub mod hostile;
pub mod processes;
pub mod servers;
pub mod service;
pub mod wait;
pub mod world;

pub use fakes::{git_server, scripted_acp, scripted_llm, scripted_mcp, stub};
pub use servers::{cluster, engine, machine_address, postgres, proxy};

pub use agent_server::Version;
pub use client::Client;
pub use cluster::Cluster;
pub use engine::{Engine, PrivateEngine};
pub use git_server::GitServer;
pub use postgres::Postgres;
pub use scripted_llm::ScriptedLlm;
pub use scripted_mcp::ScriptedMcp;
pub use service::{Builder, Sandboxing, Service};
pub use stub::Stub;
pub use world::World;

/// Prints a line on standard error for the person who runs the suites.
pub fn print_line(text: &str) {
    use std::io::Write as _;
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
