//! Conversations, their events, messages and start tasks on the wire.

pub(crate) mod event;
pub(crate) mod message;
pub(crate) mod pending_message;
pub(crate) mod record;
pub(crate) mod start_request;
pub(crate) mod start_task;
pub(crate) mod workspace;
