//! Conversations, their reports, their deletion and messages that wait for them.

pub mod deletion;
pub mod pending_messages;
pub mod reports;
pub mod rows;
pub mod search;
