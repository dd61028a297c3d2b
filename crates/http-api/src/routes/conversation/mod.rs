//! Conversations, the start tasks behind them, and their events.

pub(super) mod download;
pub(super) mod event_stream;
pub(super) mod events;
pub(super) mod lifecycle;
pub(super) mod pending_messages;
pub(super) mod start_tasks;
pub(super) mod workspace;
