//! Sandboxes, and what agent servers call and serve.

mod callback_tokens;
mod catalogue;
mod cloud_proxy;
mod egress_requests;
pub(crate) mod forwarding;
mod git;
mod git_limits;
mod model_spending;
mod models;
mod sandboxes;
mod workspace;
