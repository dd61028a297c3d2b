//! Conversations, their events, messages and start tasks on the wire.

pub mod event;
pub mod message;
pub mod pending_message;
pub mod record;
pub mod start_request;
pub mod start_task;
pub mod workspace;
