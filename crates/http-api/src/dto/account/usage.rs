//! A user's usage on the wire. An addition: the reference has no quotas.

use application::quotas::UsageReport;
use domain::user::usage::{EventStorage, Quota};
use serde::Serialize;
use utoipa::ToSchema;

/// The usage of a quota.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = QuotaUsage)]
pub struct QuotaUsageDto {
    /// The stored amount.
    used: u64,
    /// The limit; `null`: unlimited.
    #[schema(required)]
    limit: Option<u64>,
}

/// How events are stored.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EventStorageState)]
pub enum EventStorageDto {
    /// In full.
    Complete,
    /// `event_bytes` is exhausted: long texts in new events and in old observations are cut.
    Shortened,
    /// `events` is exhausted, or `event_bytes` by more than a tenth: new events are not stored. Statuses, titles and costs still
    /// are.
    Stopped,
}

impl From<EventStorage> for EventStorageDto {
    fn from(storage: EventStorage) -> Self {
        match storage {
            EventStorage::Complete => Self::Complete,
            EventStorage::Shortened => Self::Shortened,
            EventStorage::Stopped => Self::Stopped,
        }
    }
}

/// The usage and quotas of a user.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageDto {
    /// Conversations and running starts.
    conversations: QuotaUsageDto,
    /// Events of all conversations.
    events: QuotaUsageDto,
    /// Bytes of events.
    event_bytes: QuotaUsageDto,
    /// Bytes of start requests and pending messages.
    request_bytes: QuotaUsageDto,
    /// Secrets.
    secrets: QuotaUsageDto,
    /// Pending messages.
    pending_messages: QuotaUsageDto,
    /// How events are stored now.
    event_storage: EventStorageDto,
    /// Stored events whose long texts were cut afterwards.
    shortened_events: u64,
}

impl From<UsageReport> for UsageDto {
    fn from(report: UsageReport) -> Self {
        let of = |quota| QuotaUsageDto {
            used: report.usage.of(quota),
            limit: report.limits.of(quota),
        };
        Self {
            conversations: of(Quota::Conversations),
            events: of(Quota::Events),
            event_bytes: of(Quota::EventBytes),
            request_bytes: of(Quota::RequestBytes),
            secrets: of(Quota::Secrets),
            pending_messages: of(Quota::PendingMessages),
            event_storage: report.limits.event_storage(&report.usage).into(),
            shortened_events: report.usage.shortened_events,
        }
    }
}
