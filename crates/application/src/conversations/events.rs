//! Reads the events of a conversation from the store.

use std::sync::Arc;

use domain::event::{Event, EventFilter, EventOrder};
use domain::id::{ConversationId, EventId};
use domain::page::{Page, PageRequest};
use domain::user::scope::Scope;

use crate::{AppError, Inner};

#[derive(Clone)]
pub struct EventService(Arc<Inner>);

impl EventService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// A page of events. An unknown conversation has no events.
    pub async fn search(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, AppError> {
        Ok(self
            .0
            .ports
            .events
            .search(scope, conversation, filter, order, page)
            .await?)
    }

    pub async fn count(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, AppError> {
        Ok(self
            .0
            .ports
            .events
            .count(scope, conversation, filter)
            .await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, AppError> {
        Ok(self
            .0
            .ports
            .events
            .find_many(scope, conversation, ids)
            .await?)
    }
}
