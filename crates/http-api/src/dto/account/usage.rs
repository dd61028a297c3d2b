//! A user's usage on the wire. An addition: the reference has no quotas.

use application::quotas::UsageReport;
use domain::user::usage::Quota;

use crate::decode::model;
use crate::dto::enums::EventStorageSchema;

/// The usage of a quota.
#[model(response = QuotaUsage)]
pub(crate) struct QuotaUsageDto {
    /// The stored amount.
    used: u64,
    /// The limit; `null`: unlimited.
    limit: Option<u64>,
}

fn usage_of(report: &UsageReport, quota: Quota) -> QuotaUsageDto {
    QuotaUsageDto {
        used: report.usage.of(quota),
        limit: report.limits.of(quota),
    }
}

/// The usage and quotas of a user.
#[model(response = Usage, from(report: UsageReport))]
pub(crate) struct UsageDto {
    /// Conversations and running starts.
    #[from(usage_of(&report, Quota::Conversations))]
    conversations: QuotaUsageDto,
    /// Events of all conversations.
    #[from(usage_of(&report, Quota::Events))]
    events: QuotaUsageDto,
    /// Bytes of events.
    #[from(usage_of(&report, Quota::EventBytes))]
    event_bytes: QuotaUsageDto,
    /// Bytes of start requests and pending messages.
    #[from(usage_of(&report, Quota::RequestBytes))]
    request_bytes: QuotaUsageDto,
    /// Secrets.
    #[from(usage_of(&report, Quota::Secrets))]
    secrets: QuotaUsageDto,
    /// Pending messages.
    #[from(usage_of(&report, Quota::PendingMessages))]
    pending_messages: QuotaUsageDto,
    /// How events are stored now.
    #[schema(value_type = EventStorageSchema)]
    #[from(report.limits.event_storage(&report.usage).as_str())]
    event_storage: &'static str,
    /// Stored events whose long texts were cut afterwards.
    #[from(report.usage.shortened_events)]
    shortened_events: u64,
}
