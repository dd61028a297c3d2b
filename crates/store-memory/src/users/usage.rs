//! `UsageRepository`, which counts everything at each call.

use async_trait::async_trait;
use domain::error::StoreError;
use domain::event::shorten_document;
use domain::id::OwnerId;
use domain::json::text_bytes;
use domain::user::scope::Scope;
use domain::user::usage::{ShortenedEvents, Usage, UsageRepository};

use crate::MemoryStore;

/// Length of a text in bytes, 0 for an error.
fn bytes(text: serde_json::Result<String>) -> u64 {
    text.map_or(0, |text| text.len() as u64)
}

#[async_trait]
impl UsageRepository for MemoryStore {
    async fn usage(&self, scope: &Scope, user: &OwnerId) -> Result<Usage, StoreError> {
        let state = self.lock();
        let mut usage = Usage::default();
        if !scope.sees(user) {
            return Ok(usage);
        }
        for row in state
            .conversations
            .values()
            .filter(|row| row.conversation.owner == *user)
        {
            let log = state
                .events
                .get(&row.conversation.id)
                .map_or(&[][..], Vec::as_slice);
            usage.conversations += 1;
            usage.events += log.len() as u64;
            usage.event_bytes += log
                .iter()
                .map(|it| text_bytes(&it.body) as u64)
                .sum::<u64>();
            usage.shortened_events += row.shortened_events;
        }
        for row in state.tasks.values().filter(|it| it.task.owner == *user) {
            let is_open = !row.task.status.is_terminal();
            usage.conversations += u64::from(is_open && !row.begun);
            usage.request_bytes += bytes(serde_json::to_string(&row.task.request));
        }
        for row in state.pending.iter().filter(|it| it.owner == *user) {
            usage.pending_messages += 1;
            usage.request_bytes += bytes(serde_json::to_string(&row.message.message));
        }
        let secrets = state.secrets.keys().filter(|(owner, _)| owner == user);
        usage.secrets = secrets.count() as u64;
        Ok(usage)
    }

    async fn shorten_events(&self, user: &OwnerId) -> Result<ShortenedEvents, StoreError> {
        let mut state = self.lock();
        let state = &mut *state;
        let rows = state.conversations.values_mut();
        let mut owned: Vec<_> = rows.filter(|row| row.conversation.owner == *user).collect();
        owned.sort_by_key(|row| (row.conversation.created_at, row.conversation.id));
        for row in owned {
            let log = state.events.entry(row.conversation.id).or_default();
            if let Some(event) = log.iter_mut().find(|it| it.is_bulky_observation()) {
                let before = text_bytes(&event.body);
                event.body = shorten_document(event.body.clone());
                row.shortened_events += 1;
                let bytes = before.saturating_sub(text_bytes(&event.body)) as u64;
                return Ok(ShortenedEvents { events: 1, bytes });
            }
        }
        Ok(ShortenedEvents::default())
    }
}
