//! The adapter against a stub of the agent server: its requests, and its results for all kinds of responses.

#![expect(
    clippy::unwrap_used,
    reason = "test code: a panic is the failure report"
)]

mod automations;
mod dormant;
mod exchange;
mod launch;
mod models;
mod responses;
mod stub;
mod support;
mod workspace;
