//! Local processes as sandboxes.
//!
//! Knows: processes of this machine, their files, and how to install and start the agent server.
//! Must never know: HTTP, storage, other backends, or who may do what.
//!
//! The module `confinement` isolates them. Without it (`process.isolation = "none"`) they are not isolated from each other
//! or from the service: they run as the same user of the operating system.
//!
//! # How a sandbox is found again
//!
//! * `process.json` in its directory names the main process by pid, start time and boot of the machine.
//! * Every process of a sandbox has `AGENT_WORKSPACE_SANDBOX=<host>/<id>` in its initial environment (the marker).
//!
//! The file alone would lose a process that was spawned just before the service was killed; the marker alone cannot tell
//! a crash from a stop. With both, every gap between two writes has one meaning (see the modules `state` and `start`).

#[cfg(not(target_os = "linux"))]
compile_error!("the process backend needs Linux (pidfds and /proc); build without it elsewhere");

mod backend;
mod config;
mod confinement;
mod doctor;
mod environment;
mod errors;
mod files;
mod fork_server;
mod lifecycle;
mod processes;
mod provider;
mod provision;
mod recipe;
mod server;
mod specs;

pub use backend::ProcessSandboxes;
pub use config::{AgentServerSource, ProcessConfig};
pub use confinement::Confinement;
pub use confinement::plan::{NetworkPolicy, SERVICE_ADDRESS};
pub use confinement::walls::ProcessLimits;
pub use fork_server::ForkServerMode;
pub use processes::launcher;
pub use provider::ProcessProvider;
pub use provision::{Config as ProvisionConfig, InstallEnvironment, PythonProgram};
pub use specs::specs;
