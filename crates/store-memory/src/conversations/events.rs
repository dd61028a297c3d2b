//! `EventStore`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::conversation::ConversationReport;
use domain::error::StoreError;
use domain::event::{
    AppendOutcome, Event, EventFilter, EventOrder, EventStore, MAX_EVENT_BATCH_BYTES,
    SequencedEvent,
};
use domain::id::{ConversationId, EventId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::user::scope::Scope;

use crate::state::MemoryState;
use crate::{MemoryStore, page};

impl MemoryState {
    /// The events that the scope sees, in sequence.
    fn log(&self, scope: &Scope, conversation: ConversationId) -> &[Event] {
        let visible = self
            .conversations
            .get(&conversation)
            .is_some_and(|row| scope.sees(&row.conversation.owner));
        match self.events.get(&conversation) {
            Some(events) if visible => events,
            _ => &[],
        }
    }
}

fn matches(event: &Event, filter: &EventFilter) -> bool {
    filter.kind.as_ref().is_none_or(|kind| event.kind == *kind)
        && filter.from.is_none_or(|from| event.timestamp >= from)
        && filter.before.is_none_or(|end| event.timestamp < end)
}

#[async_trait]
impl EventStore for MemoryStore {
    async fn append(
        &self,
        origin: &SandboxId,
        conversation: ConversationId,
        events: &[Event],
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let mut state = self.lock();
        if let Err(outcome) = state.reported_by(origin, conversation) {
            return Ok(outcome);
        }
        let log = state.events.entry(conversation).or_default();
        let before = log.len();
        for event in events {
            if log.iter().all(|known| known.id != event.id) {
                log.push(event.clone());
            }
        }
        let new = log.len() - before;
        if let Ok(row) = state.reported_by(origin, conversation) {
            row.apply_report(report, at);
            if new > 0 {
                row.conversation.updated_at = at;
            }
        }
        Ok(AppendOutcome::Stored { new })
    }

    async fn find_many(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, StoreError> {
        let state = self.lock();
        let log = state.log(scope, conversation);
        Ok(ids
            .iter()
            .map(|id| log.iter().find(|event| event.id == *id).cloned())
            .collect())
    }

    async fn search(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, StoreError> {
        let state = self.lock();
        let descending = order == EventOrder::TimestampDesc;
        let sign = if descending { '-' } else { '+' };
        let rows = state
            .log(scope, conversation)
            .iter()
            .enumerate()
            .filter(|(_, event)| matches(event, filter))
            .map(|(seq, event)| {
                (
                    (event.timestamp.micros(), format!("{seq:020}")),
                    event.clone(),
                )
            });
        page::page_by_bytes(
            &format!("events{sign}{conversation}"),
            page,
            descending,
            rows,
            |event: &Event| event.body.to_string().len(),
        )
    }

    async fn list_after(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SequencedEvent>>, StoreError> {
        let state = self.lock();
        let row = state.conversations.get(&conversation);
        if !row.is_some_and(|row| scope.sees(&row.conversation.owner)) {
            return Ok(None);
        }
        let mut remaining = MAX_EVENT_BATCH_BYTES;
        let mut batch: Vec<SequencedEvent> = Vec::new();
        for (seq, event) in (1..).zip(state.log(scope, conversation)) {
            if seq <= after {
                continue;
            }
            let rest = remaining.checked_sub(event.body.to_string().len());
            remaining = rest.unwrap_or_default();
            if batch.len() == limit || (rest.is_none() && !batch.is_empty()) {
                break;
            }
            let event = event.clone();
            batch.push(SequencedEvent { seq, event });
        }
        Ok(Some(batch))
    }

    async fn last_sequence(
        &self,
        scope: &Scope,
        conversation: ConversationId,
    ) -> Result<Option<u64>, StoreError> {
        let state = self.lock();
        let row = state.conversations.get(&conversation);
        if !row.is_some_and(|row| scope.sees(&row.conversation.owner)) {
            return Ok(None);
        }
        let last = state.log(scope, conversation).len();
        Ok(Some(u64::try_from(last).unwrap_or(u64::MAX)))
    }

    async fn count(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, StoreError> {
        let state = self.lock();
        let log = state.log(scope, conversation);
        let count = log.iter().filter(|event| matches(event, filter)).count();
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }
}
