//! Exports of whole conversations, page by page.

use std::sync::Arc;

use domain::conversation::{ConversationRepository, ConversationView};
use domain::error::ErrorClass;
use domain::event::{Event, EventFilter, EventOrder, EventStore};
use domain::id::{ConversationId, OwnerId};
use domain::page::PageRequest;
use domain::user::scope::Scope;

use crate::AppError;
use crate::runtime::user_slots::{NoSlot, UserSlot, UserSlots};

/// Exports that this process runs at the same time; each holds at most one page of events.
const MAX_EXPORTS: usize = 8;
const MAX_EXPORTS_PER_USER: usize = 2;

#[derive(Clone)]
pub struct ExportService {
    events: Arc<dyn EventStore>,
    conversations: Arc<dyn ConversationRepository>,
    running: UserSlots<ConversationId>,
}

/// A running export. It holds no resource of the store between two pages.
pub struct Export {
    /// The conversation as of the start of the export.
    pub conversation: ConversationView,
    events: Arc<dyn EventStore>,
    scope: Scope,
    next: PageRequest,
    /// Events that existed at the start and are not read yet.
    left: u64,
    _slot: UserSlot<ConversationId>,
}

impl ExportService {
    pub(crate) fn new(
        events: Arc<dyn EventStore>,
        conversations: Arc<dyn ConversationRepository>,
    ) -> Self {
        Self {
            events,
            conversations,
            running: UserSlots::new(MAX_EXPORTS_PER_USER, MAX_EXPORTS).exclusive(),
        }
    }

    /// Begins an export. A second export of the same conversation by the same user is a conflict; too many exports are
    /// refused.
    pub async fn begin(&self, user: &OwnerId, id: ConversationId) -> Result<Export, AppError> {
        let scope = Scope::Owner(user.clone());
        // Counted before the look-up, so that a conversation deleted in between is reported as not found.
        let all = EventFilter::default();
        let left = self.events.count(&scope, id, &all).await?;
        let found = self.conversations.find(&scope, id).await?;
        let conversation = found.ok_or_else(|| {
            AppError::not_found(format!("Conversation not found: {}", id.dashed()))
        })?;
        let slot = acquire_slot(&self.running, user, id)?;
        Ok(Export {
            conversation,
            events: Arc::clone(&self.events),
            scope,
            next: PageRequest::default(),
            left,
            _slot: slot,
        })
    }
}

impl Export {
    /// The next events, oldest first. Returns `None` after the number of events at the start, so that the export of a
    /// running conversation ends. Returns not found when events are missing, because events are only deleted with
    /// their conversation.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Event>>, AppError> {
        if self.left == 0 {
            return Ok(None);
        }
        let id = self.conversation.conversation.id;
        let all = EventFilter::default();
        let (scope, order) = (&self.scope, EventOrder::Timestamp);
        let page = self.events.search(scope, id, &all, order, &self.next);
        let page = page.await?;
        let mut events = page.items;
        events.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= events.len() as u64;
        self.next.after = page.next;
        if events.is_empty() || self.left > 0 && self.next.after.is_none() {
            return Err(AppError::not_found(
                "The conversation was deleted while it was read",
            ));
        }
        Ok(Some(events))
    }
}

/// Takes a slot, or says why there is none.
fn acquire_slot(
    running: &UserSlots<ConversationId>,
    user: &OwnerId,
    id: ConversationId,
) -> Result<UserSlot<ConversationId>, AppError> {
    running.acquire(user, id).map_err(|refusal| match refusal {
        NoSlot::Held => AppError::conflict(
            "A download of this conversation is already running. Wait until it has ended.",
        ),
        NoSlot::PerUser | NoSlot::Overall => AppError::refused(
            ErrorClass::RateLimited,
            "Too many downloads are running. Try again when one has ended.",
        ),
    })
}

#[cfg(test)]
mod tests {
    use domain::error::Classify as _;

    use super::*;

    #[test]
    fn exports_are_limited_per_conversation_and_user() {
        let running = UserSlots::new(MAX_EXPORTS_PER_USER, MAX_EXPORTS).exclusive();
        let acquire = |number| {
            let id = ConversationId::new(uuid::Uuid::from_u128(number));
            acquire_slot(&running, &OwnerId::parse("ada").unwrap(), id)
        };
        let _first = acquire(1).unwrap();
        assert_eq!(acquire(1).unwrap_err().class(), ErrorClass::Conflict);
        let _second = acquire(2).unwrap();
        assert_eq!(acquire(3).unwrap_err().class(), ErrorClass::RateLimited);
    }
}
