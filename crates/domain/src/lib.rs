//! The types, ports and errors of agent-workspace.
//!
//! Knows: the vocabulary of the product and the obligations of every adapter.
//! Must never know: a runtime, the environment, a driver, or another crate of the workspace. It knows the system's time
//! only in [`SystemClock`](clock::SystemClock), and HTTP statuses only as outcomes in the audit log.
//!
//! # Conventions of the ports
//!
//! * A port is an object-safe `#[async_trait] pub trait X: Send + Sync + 'static`, used as `Arc<dyn X>`.
//! * A method that acts for a user takes a [`Scope`](user::scope::Scope) or the user's id ([`UserId`](id::UserId)). A row
//!   outside the scope is *not found*, never *forbidden*. Methods for the service itself take neither.
//! * **One method call is one transaction.** When it returns `Ok`, its changes are durable.
//! * Look-ups return `Option`. `find_many` keeps order and length. An idempotent delete returns whether anything existed.
//! * No port polls or logs a secret. Only [`prepare`](sandbox::SandboxBackend::prepare) takes a callback. Time, ids and
//!   randomness are parameters ([`Clock`](clock::Clock), [`IdGenerator`](id::IdGenerator)).
//! * Each port's error enum is small and concrete and implements [`Classify`](error::Classify): the text for clients
//!   ([`public`](error::Classify::public)) is separate from the text for the operator's log (`Display` and `source`).

#![expect(
    missing_docs,
    reason = "a comment that repeats the name of a field, variant or method says nothing"
)]

pub mod agent;
pub mod audit;
pub mod clock;
pub mod conversation;
pub mod coordination;
pub mod crash_point;
pub mod egress_list;
pub mod encryption;
pub mod error;
pub mod event;
pub mod git;
pub mod git_rights;
pub mod host_rule;
pub mod id;
pub mod json;
pub mod metrics;
pub mod network;
pub mod page;
pub mod patch;
pub mod sandbox;
pub mod secret_rule;
pub mod skill;
pub mod start_task;
pub mod user;
mod wire_enum;
