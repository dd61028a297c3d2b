//! Sandboxes as local processes.
//!
//! Knows: processes of this machine, their files, and how to install and start the agent server.
//! Must never know: HTTP, storage, other backends, or who may do what.

#[cfg(not(target_os = "linux"))]
compile_error!("the process backend needs Linux (pidfds and /proc); build without it elsewhere");

pub mod provision;

mod pidfd;
mod proc;
