//! Reads the events of a conversation from the store.

use std::sync::Arc;

use domain::event::{Event, EventFilter, EventOrder, EventStore};
use domain::id::{ConversationId, EventId};
use domain::page::{Page, PageRequest};
use domain::user::scope::Scope;

use crate::AppError;

#[derive(Clone)]
pub struct EventService(pub(crate) Arc<dyn EventStore>);

impl EventService {
    /// A page of events. An unknown conversation has no events.
    pub async fn search(
        &self,
        scope: &Scope,
        id: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, AppError> {
        Ok(self.0.search(scope, id, filter, order, page).await?)
    }

    pub async fn count(
        &self,
        scope: &Scope,
        id: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, AppError> {
        Ok(self.0.count(scope, id, filter).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        id: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, AppError> {
        Ok(self.0.find_many(scope, id, ids).await?)
    }
}
