//! Conversations, their events, messages and start tasks on the wire.

pub(crate) mod event;
pub(crate) mod message;
pub(crate) mod pending_message;
pub(crate) mod record;
pub(crate) mod start_request;
pub(crate) mod start_task;
pub(crate) mod workspace;

/// Longest title that a client may set.
const MAX_TITLE_CHARS: u64 = 20_000;
const _: () = assert!(MAX_TITLE_CHARS == 20_000, "`max_length` in the document");
