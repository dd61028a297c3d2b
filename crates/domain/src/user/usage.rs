//! Usage of storage by users, and its quotas.

use async_trait::async_trait;

use crate::error::StoreError;
use crate::id::OwnerId;
use crate::user::scope::Scope;
use crate::wire_enum::wire_enum;

/// What the store holds of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Conversations, and unfinished starts that have not stored theirs yet.
    pub conversations: u64,
    pub events: u64,
    pub event_bytes: u64,
    /// Events of which only the short form is stored.
    pub shortened_events: u64,
    /// Bytes of the bodies of start requests and pending messages.
    pub request_bytes: u64,
    pub secrets: u64,
    pub pending_messages: u64,
}

/// A figure of [`Usage`] that can have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    Conversations,
    Events,
    EventBytes,
    RequestBytes,
    Secrets,
    PendingMessages,
}

impl Quota {
    /// All quotas, with their names on the wire, in metrics and in the configuration.
    pub const ALL: [(&'static str, Self); 6] = [
        ("conversations", Self::Conversations),
        ("events", Self::Events),
        ("event_bytes", Self::EventBytes),
        ("request_bytes", Self::RequestBytes),
        ("secrets", Self::Secrets),
        ("pending_messages", Self::PendingMessages),
    ];

    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

impl Usage {
    pub const fn of(mut self, quota: Quota) -> u64 {
        *self.figure(quota)
    }

    pub const fn add(&mut self, quota: Quota, more: u64) {
        let used = self.figure(quota);
        *used = used.saturating_add(more);
    }

    const fn figure(&mut self, quota: Quota) -> &mut u64 {
        match quota {
            Quota::Conversations => &mut self.conversations,
            Quota::Events => &mut self.events,
            Quota::EventBytes => &mut self.event_bytes,
            Quota::RequestBytes => &mut self.request_bytes,
            Quota::Secrets => &mut self.secrets,
            Quota::PendingMessages => &mut self.pending_messages,
        }
    }
}

/// What each user may store and each sandbox may report; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// By [`Quota`], in the order of [`Quota::ALL`].
    pub stored: [Option<u64>; Quota::ALL.len()],
    /// Bytes of events that one sandbox may report in a minute.
    pub report_bytes_per_minute: Option<u64>,
}

impl QuotaLimits {
    pub const fn of(&self, quota: Quota) -> Option<u64> {
        self.stored[quota as usize]
    }

    /// The same limits with another limit for this quota.
    #[must_use]
    pub const fn with(mut self, quota: Quota, limit: Option<u64>) -> Self {
        self.stored[quota as usize] = limit;
        self
    }

    /// How new events of a user with this usage are stored.
    pub fn event_storage(&self, usage: &Usage) -> EventStorage {
        let bytes = self.of(Quota::EventBytes);
        let stops_at = bytes.map(|limit| limit.saturating_add(limit / 10));
        let has_all = |limit| usage.events >= limit;
        let has_all_bytes = |limit| usage.event_bytes >= limit;
        if self.of(Quota::Events).is_some_and(has_all) || stops_at.is_some_and(has_all_bytes) {
            EventStorage::Stopped
        } else if bytes.is_some_and(has_all_bytes) {
            EventStorage::Shortened
        } else {
            EventStorage::Complete
        }
    }
}

wire_enum! {
    /// How the events of a user are stored. Status, title and metrics of conversations are stored in each case.
    EventStorage {
        Complete = "complete",
        /// The quota of bytes is used up: bulky documents are shortened, those of old observations as well as new ones.
        Shortened = "shortened",
        /// The quota of events, or 110 % of the quota of bytes, is used up: new events are not stored.
        Stopped = "stopped",
    }
}

/// The result of [`UsageRepository::shorten_events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShortenedEvents {
    /// Number of shortened events. 0 means that the user has no bulky observation left.
    pub events: u64,
    /// Number of bytes saved.
    pub bytes: u64,
}

/// Usage counters. Each counter changes in the transaction that stores or deletes what it counts, so that it always
/// equals a recount.
#[async_trait]
pub trait UsageRepository: Send + Sync + 'static {
    /// The usage of the user; zeros if the scope does not see the user.
    async fn usage(&self, scope: &Scope, user: &OwnerId) -> Result<Usage, StoreError>;
    /// Shortens some of the user's bulky observations (see [`crate::event::Event::is_bulky_observation`]), beginning
    /// with the oldest of the oldest conversation. One call reads a bounded amount.
    async fn shorten_events(&self, user: &OwnerId) -> Result<ShortenedEvents, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shortened_before_they_are_dropped() {
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
    fn each_quota_has_its_own_name_and_figure() {
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
