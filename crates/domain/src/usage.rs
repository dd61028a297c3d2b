//! What is stored of one user, and how much of it may be.

use async_trait::async_trait;

use crate::error::StoreError;
use crate::id::UserId;
use crate::scope::Scope;

/// What the store holds of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Conversations, and starts under way that have not stored theirs yet.
    pub conversations: u64,
    /// Events of all conversations.
    pub events: u64,
    /// Bytes of their documents.
    pub event_bytes: u64,
    /// Events of which only the shortened document is left.
    pub shortened_events: u64,
    /// Bytes of the bodies of start requests and pending messages.
    pub request_bytes: u64,
    /// Custom secrets.
    pub secrets: u64,
    /// Messages that wait for their conversation.
    pub pending_messages: u64,
}

/// A figure of [`Usage`] that may have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// [`Usage::conversations`].
    Conversations,
    /// [`Usage::events`].
    Events,
    /// [`Usage::event_bytes`].
    EventBytes,
    /// [`Usage::request_bytes`].
    RequestBytes,
    /// [`Usage::secrets`].
    Secrets,
    /// [`Usage::pending_messages`].
    PendingMessages,
}

impl Quota {
    /// Each, with its name on the wire, in metrics and in the configuration.
    pub const ALL: [(&'static str, Self); 6] = [
        ("conversations", Self::Conversations),
        ("events", Self::Events),
        ("event_bytes", Self::EventBytes),
        ("request_bytes", Self::RequestBytes),
        ("secrets", Self::Secrets),
        ("pending_messages", Self::PendingMessages),
    ];

    /// The name.
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

impl Usage {
    /// How much of this is used.
    pub const fn of(&self, quota: Quota) -> u64 {
        match quota {
            Quota::Conversations => self.conversations,
            Quota::Events => self.events,
            Quota::EventBytes => self.event_bytes,
            Quota::RequestBytes => self.request_bytes,
            Quota::Secrets => self.secrets,
            Quota::PendingMessages => self.pending_messages,
        }
    }

    /// Counts more of it.
    pub const fn add(&mut self, quota: Quota, more: u64) {
        let used = match quota {
            Quota::Conversations => &mut self.conversations,
            Quota::Events => &mut self.events,
            Quota::EventBytes => &mut self.event_bytes,
            Quota::RequestBytes => &mut self.request_bytes,
            Quota::Secrets => &mut self.secrets,
            Quota::PendingMessages => &mut self.pending_messages,
        };
        *used = used.saturating_add(more);
    }
}

/// How much each user may store, and how much each sandbox may report; `None`: any amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// By [`Quota`], in the order of [`Quota::ALL`].
    pub stored: [Option<u64>; Quota::ALL.len()],
    /// Bytes of events that one sandbox may report in a minute.
    pub report_bytes_per_minute: Option<u64>,
}

impl QuotaLimits {
    /// The limit of this.
    pub const fn of(&self, quota: Quota) -> Option<u64> {
        self.stored[quota as usize]
    }

    /// The same limits but for this one.
    #[must_use]
    pub const fn with(mut self, quota: Quota, limit: Option<u64>) -> Self {
        self.stored[quota as usize] = limit;
        self
    }

    /// How the events of a user are stored who uses so much.
    pub fn event_storage(&self, usage: &Usage) -> EventStorage {
        let is_full = |quota, limit: u64| usage.of(quota) >= limit;
        let bytes = self.of(Quota::EventBytes);
        let stops_at = bytes.map(|limit| limit.saturating_add(limit / 10));
        if self
            .of(Quota::Events)
            .is_some_and(|it| is_full(Quota::Events, it))
            || stops_at.is_some_and(|it| is_full(Quota::EventBytes, it))
        {
            EventStorage::Stopped
        } else if bytes.is_some_and(|it| is_full(Quota::EventBytes, it)) {
            EventStorage::Shortened
        } else {
            EventStorage::Complete
        }
    }
}

/// How the events of a user are stored. Status, title and figures of conversations are kept in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventStorage {
    /// As they are.
    Complete,
    /// The quota of bytes is used up: bulky documents are shortened, those of old observations as well as new ones.
    Shortened,
    /// The quota of events, or the one of bytes and a tenth, is used up: no more are stored.
    Stopped,
}

impl EventStorage {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Shortened => "shortened",
            Self::Stopped => "stopped",
        }
    }
}

/// What became of [`UsageRepository::shorten_events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShortenedEvents {
    /// Events whose documents are shorter now. 0: the user has no bulky observation any more.
    pub events: u64,
    /// By how many bytes, in all.
    pub bytes: u64,
}

/// Sums over counters that are kept with what they count: each changes in the transaction that stores or deletes it, and
/// equals a recount at any time.
#[async_trait]
pub trait UsageRepository: Send + Sync + 'static {
    /// What is stored of the user; nothing of one whom the scope does not see.
    async fn usage(&self, scope: &Scope, user: &UserId) -> Result<Usage, StoreError>;
    /// Shortens the documents of some of the user's bulky observations (see [`crate::event::Event::is_bulky_observation`]),
    /// those of the oldest conversation that has any first, oldest first. What one call reads is bounded.
    async fn shorten_events(&self, user: &UserId) -> Result<ShortenedEvents, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shortened_before_they_are_left_out() {
        let limits = QuotaLimits::default()
            .with(Quota::Events, Some(10))
            .with(Quota::EventBytes, Some(1_000));
        for (events, event_bytes, expected) in [
            (0, 0, EventStorage::Complete),
            (9, 999, EventStorage::Complete),
            (9, 1_000, EventStorage::Shortened),
            (9, 1_099, EventStorage::Shortened),
            (9, 1_100, EventStorage::Stopped),
            (10, 0, EventStorage::Stopped),
        ] {
            let usage = Usage {
                events,
                event_bytes,
                ..Usage::default()
            };
            assert_eq!(limits.event_storage(&usage), expected, "{usage:?}");
            let unlimited = QuotaLimits::default().event_storage(&usage);
            assert_eq!(unlimited, EventStorage::Complete);
        }
    }

    #[test]
    fn each_quota_has_its_name_and_counts_its_figure() {
        for (n, (name, quota)) in Quota::ALL.into_iter().enumerate() {
            assert_eq!((quota as usize, quota.name()), (n, name));
            let mut usage = Usage::default();
            usage.add(quota, 7);
            let used = Quota::ALL.map(|(_, it)| usage.of(it));
            assert_eq!(used.iter().sum::<u64>(), 7);
            assert_eq!(usage.of(quota), 7);
        }
    }
}
