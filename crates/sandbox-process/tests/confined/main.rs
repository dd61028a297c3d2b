//! The process backend with confined sandboxes: real processes, and the tests of the backend without walls.
//!
//! Needs bubblewrap and slirp4netns (docs/how-to/confine-sandboxes.md).

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

#[path = "../process/adoption.rs"]
mod adoption;
#[path = "../process/conformance.rs"]
mod conformance;
mod egress;
#[path = "../process/ending.rs"]
mod ending;
mod isolation;
#[path = "../process/starting.rs"]
mod starting;
#[path = "../process/support.rs"]
mod support;
