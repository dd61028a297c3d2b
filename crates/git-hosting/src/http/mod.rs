//! Requests to providers: the client, one user's session, and the limits of concurrent requests.

pub(crate) mod client;
mod refusal;
pub(crate) mod request_slots;
pub(crate) mod session;
