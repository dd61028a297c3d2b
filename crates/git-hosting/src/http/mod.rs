//! Requests to providers: the client, and one user's session.

pub(crate) mod client;
mod refusal;
pub(crate) mod session;
