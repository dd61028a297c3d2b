//! Exports of whole conversations, page by page.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use domain::conversation::ConversationView;
use domain::error::ErrorClass;
use domain::event::{Event, EventFilter, EventOrder};
use domain::id::{ConversationId, UserId};
use domain::page::PageRequest;
use domain::user::scope::Scope;

use crate::{AppError, Inner};

/// Exports that this process runs at the same time; each holds at most one page of events.
const MAX_EXPORTS: usize = 8;
/// Exports that one user runs at the same time.
const MAX_EXPORTS_PER_USER: usize = 2;

#[derive(Clone)]
pub struct ExportService {
    inner: Arc<Inner>,
    running: Arc<ActiveExports>,
}

/// A running export. It holds no resource of the store between two pages.
#[derive(Debug)]
pub struct Export {
    /// The conversation as of the start of the export.
    pub conversation: ConversationView,
    pages: EventPages,
    _slot: ExportSlot,
}

/// The part that is not read yet.
struct EventPages {
    inner: Arc<Inner>,
    scope: Scope,
    next: PageRequest,
    /// Events that existed at the start and are not read yet.
    left: u64,
}

impl std::fmt::Debug for EventPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventPages")
            .field("next", &self.next)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl ExportService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            running: Arc::default(),
        }
    }

    /// Begins an export. A second export of the same conversation by the same user is a conflict; too many exports are
    /// refused.
    pub async fn begin(&self, user: &UserId, id: ConversationId) -> Result<Export, AppError> {
        let scope = Scope::User(user.clone());
        // Counted before the look-up, so that a conversation deleted in between is reported as not found.
        let events = &self.inner.ports.events;
        let left = events.count(&scope, id, &EventFilter::default()).await?;
        let found = self.inner.ports.conversations.find(&scope, id).await?;
        let conversation = found.ok_or_else(|| {
            AppError::not_found(format!("Conversation not found: {}", id.dashed()))
        })?;
        let slot = self.running.acquire(user, id)?;
        Ok(Export {
            conversation,
            pages: EventPages {
                inner: Arc::clone(&self.inner),
                scope,
                next: PageRequest::default(),
                left,
            },
            _slot: slot,
        })
    }

    /// Runs an export in the background until it ends or the service stops.
    pub fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(work);
    }
}

impl Export {
    /// The next events, oldest first. Returns `None` after the number of events at the start, so that the export of a
    /// running conversation ends. Returns not found when events are missing, because events are only deleted with
    /// their conversation.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Event>>, AppError> {
        let pages = &mut self.pages;
        if pages.left == 0 {
            return Ok(None);
        }
        let id = self.conversation.conversation.id;
        let events = &pages.inner.ports.events;
        let all = EventFilter::default();
        let page = events
            .search(&pages.scope, id, &all, EventOrder::Timestamp, &pages.next)
            .await?;
        let mut events = page.items;
        events.truncate(usize::try_from(pages.left).unwrap_or(usize::MAX));
        pages.left -= events.len() as u64;
        pages.next.after = page.next;
        if events.is_empty() || pages.left > 0 && pages.next.after.is_none() {
            return Err(AppError::not_found(
                "The conversation was deleted while it was read",
            ));
        }
        Ok(Some(events))
    }
}

#[derive(Debug, Default)]
struct ActiveExports(Mutex<Vec<(UserId, ConversationId)>>);

impl ActiveExports {
    fn acquire(
        self: &Arc<Self>,
        user: &UserId,
        id: ConversationId,
    ) -> Result<ExportSlot, AppError> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = || running.iter().filter(|(of, _)| of == user);
        if of_user().any(|(_, known)| *known == id) {
            return Err(AppError::conflict(
                "A download of this conversation is already running. Wait until it has ended.",
            ));
        }
        if of_user().count() >= MAX_EXPORTS_PER_USER || running.len() >= MAX_EXPORTS {
            return Err(AppError::refused(
                ErrorClass::RateLimited,
                "Too many downloads are running. Try again when one has ended.",
            ));
        }
        let key = (user.clone(), id);
        running.push(key.clone());
        Ok(ExportSlot {
            running: Arc::clone(self),
            key,
        })
    }
}

/// The slot of a running export; dropping it frees the slot.
#[derive(Debug)]
struct ExportSlot {
    running: Arc<ActiveExports>,
    key: (UserId, ConversationId),
}

impl Drop for ExportSlot {
    fn drop(&mut self) {
        let mut running = self
            .running
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = running.iter().position(|key| *key == self.key) {
            running.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn conversation(number: u128) -> ConversationId {
        ConversationId::new(uuid::Uuid::from_u128(number))
    }

    fn class(refused: Result<ExportSlot, AppError>) -> ErrorClass {
        use domain::error::Classify as _;
        refused.map(|_| ()).unwrap_err().class()
    }

    #[test]
    fn exports_are_limited_per_user_and_in_total() {
        let running = Arc::<ActiveExports>::default();
        let (ada, bob) = (user("ada"), user("bob"));
        let first = running.acquire(&ada, conversation(1)).unwrap();
        assert_eq!(
            class(running.acquire(&ada, conversation(1))),
            ErrorClass::Conflict
        );
        let second = running.acquire(&ada, conversation(2)).unwrap();
        assert_eq!(
            class(running.acquire(&ada, conversation(3))),
            ErrorClass::RateLimited
        );
        let other = running.acquire(&bob, conversation(4)).unwrap();
        drop(second);
        assert!(running.acquire(&ada, conversation(3)).is_ok());
        let others: Vec<_> = (0..6)
            .map(|n| {
                running
                    .acquire(&user(&format!("u{n}")), conversation(9))
                    .unwrap()
            })
            .collect();
        assert_eq!(
            class(running.acquire(&user("late"), conversation(9))),
            ErrorClass::RateLimited
        );
        drop((first, other, others));
        assert!(running.acquire(&user("late"), conversation(9)).is_ok());
    }
}
