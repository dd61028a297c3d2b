//! What a user stores, on the wire. Ours: the reference has no quotas.

use application::quotas::UsageReport;
use domain::usage::{EventStorage, Quota};
use serde::Serialize;
use utoipa::ToSchema;

/// How much of a quota is used.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = QuotaUsage)]
pub struct QuotaUsageDto {
    /// What is stored.
    used: u64,
    /// What may be stored; `null`: any amount.
    #[schema(required)]
    limit: Option<u64>,
}

/// How events are stored.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EventStorageState)]
pub enum EventStorageDto {
    /// As they are.
    Complete,
    /// `event_bytes` is used up: long texts in new events and in old observations are cut.
    Shortened,
    /// `events` is used up, or `event_bytes` and a tenth: new events are not stored. Statuses, titles and costs still are.
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

/// What is stored of a user, and what may be.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageDto {
    /// Conversations, and starts under way.
    conversations: QuotaUsageDto,
    /// Events of all conversations.
    events: QuotaUsageDto,
    /// Bytes of events.
    event_bytes: QuotaUsageDto,
    /// Bytes of start requests and of messages that wait.
    request_bytes: QuotaUsageDto,
    /// Secrets.
    secrets: QuotaUsageDto,
    /// Messages that wait for their conversation.
    pending_messages: QuotaUsageDto,
    /// How events are stored now.
    event_storage: EventStorageDto,
    /// Stored events whose long texts were cut later.
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
