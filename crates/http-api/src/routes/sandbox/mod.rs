//! Sandboxes: for their owners, for the agent servers inside, and for the ports they expose.

pub(super) mod cloud_proxy;
pub(super) mod egress_requests;
pub(super) mod git;
pub(super) mod hosts;
pub(super) mod lifecycle;
pub(super) mod logs;
mod model_meter;
pub(super) mod models;
mod relay;
pub(super) mod secrets;
pub(super) mod signed_paths;
pub(super) mod specs;
pub(super) mod warm_pool;
pub(super) mod webhooks;
