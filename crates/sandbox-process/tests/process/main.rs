//! The process backend against scripts that stand for the agent server: real processes, real signals, real files.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod adoption;
mod conformance;
mod ending;
mod endpoint;
mod starting;
mod support;
