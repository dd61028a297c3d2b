//! Sandboxes, and what agent servers call and serve.

mod callback_tokens;
mod catalogue;
mod cloud_proxy;
mod forwarding;
mod sandboxes;
mod workspace;
