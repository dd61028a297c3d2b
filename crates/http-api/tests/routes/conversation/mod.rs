//! Conversations and what belongs to them.

mod conversations;
mod download;
mod event_stream;
mod events;
mod git;
mod pending_messages;
mod skills;
mod start_tasks;
