//! A user's usage on the wire. An addition: the reference has no quotas.

use application::quotas::UsageReport;
use domain::user::usage::Quota;

use crate::decode::model;
use crate::dto::enums::EventStorageSchema;

/// The usage of a quota.
#[model(response = QuotaUsage)]
pub struct QuotaUsageDto {
    /// The stored amount.
    used: u64,
    /// The limit; `null`: unlimited.
    limit: Option<u64>,
}

/// The usage and quotas of a user.
#[model(response = Usage)]
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
    #[schema(value_type = EventStorageSchema)]
    event_storage: &'static str,
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
            event_storage: report.limits.event_storage(&report.usage).name(),
            shortened_events: report.usage.shortened_events,
        }
    }
}
