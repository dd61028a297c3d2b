//! Requests to providers: the client, and one user's session.

pub(crate) mod client;
pub(crate) mod paging;
mod refusal;
pub(crate) mod session;
