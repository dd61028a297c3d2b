//! Local processes as sandboxes.
//!
//! Knows: processes of this machine, their files, and how to install and start the agent server.
//! Must never know: HTTP, storage, other backends, or who may do what.
//!
//! Processes are not isolated from each other or from the service: they run as the same user of the operating system.
//! This backend is for one person or one team on one machine.
//!
//! # How a sandbox is found again
//!
//! * `process.json` in its directory names the main process by pid, start time and boot of the machine.
//! * Every process of it carries `AGENT_WORKSPACE_SANDBOX=<instance>/<id>` in the environment it was started with.
//!
//! The file alone would lose a process that was spawned just before the service was killed; the marker alone cannot tell
//! a crash from a stop. Together every gap between two lines has one meaning (see the `state` and `start` modules).

#[cfg(not(target_os = "linux"))]
compile_error!("the process backend needs Linux (pidfds and /proc); build without it elsewhere");

pub mod launcher;
pub mod provision;

mod backend;
mod config;
mod confine;
mod digest;
mod endpoint;
mod environment;
mod errors;
mod layout;
mod lock;
mod log_file;
mod log_stream;
mod marker;
mod monitor;
mod observe;
mod pidfd;
mod proc;
mod recipe;
mod server;
mod spawn;
mod specs;
mod start;
mod state;
mod stop;

pub use backend::ProcessSandboxes;
pub use config::{AgentServerSource, ProcessConfig};
pub use environment::settings_are_readable;
pub use specs::ProcessSpecs;
