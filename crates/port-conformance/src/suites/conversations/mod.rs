//! Conversations, their reports, their deletion and their pending messages.

pub mod deletion;
pub mod pending_messages;
pub mod reports;
pub mod rows;
pub mod search;
