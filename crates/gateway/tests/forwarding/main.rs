//! The gateway between a scripted client and a scripted upstream.

#![expect(
    clippy::unwrap_used,
    reason = "test code: a panic is the failure report"
)]

mod authentication;
mod bodies;
mod endings;
mod failures;
mod fixture;
mod responses;
mod tunnels;
