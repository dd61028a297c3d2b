//! Conversations, their events, messages and start tasks on the wire.

pub mod event;
pub mod message;
pub mod pending_message;
pub mod record;
pub mod start_request;
pub mod start_task;
pub mod workspace;

/// Longest title that a client may set.
const MAX_TITLE_CHARS: u64 = 20_000;
const _: () = assert!(MAX_TITLE_CHARS == 20_000, "`max_length` in the document");
