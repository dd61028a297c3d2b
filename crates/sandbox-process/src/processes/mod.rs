//! Processes of this machine: finding, starting, signalling and proving them.

mod endpoint;
pub mod launcher;
pub(crate) mod marker;
pub(crate) mod pidfd;
pub(crate) mod proc;
pub(crate) mod programs;
pub(crate) mod spawn;
