//! Hints about new events that wait to be sent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use domain::id::ConversationId;

/// Conversations with new events whose hints have not been sent.
pub(super) type PendingHints = Arc<Mutex<BTreeSet<ConversationId>>>;
